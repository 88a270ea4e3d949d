"""Tests of daemon/surfaces."""
