"""Tests of daemon/wire."""
