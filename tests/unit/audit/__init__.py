"""Tests of daemon/audit."""
