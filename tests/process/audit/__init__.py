"""Tests of daemon/audit that start processes."""
