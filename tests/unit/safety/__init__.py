"""Tests of daemon/safety."""
