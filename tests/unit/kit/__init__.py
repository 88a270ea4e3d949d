"""Tests of daemon/kit."""
