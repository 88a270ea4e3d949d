"""Tests of daemon/host."""
