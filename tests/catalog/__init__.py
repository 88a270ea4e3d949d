"""Tests of daemon/catalog."""
