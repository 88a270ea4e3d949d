"""Tests of daemon/config."""
