"""Tests of daemon/search."""
