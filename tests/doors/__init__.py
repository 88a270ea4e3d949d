"""Tests of daemon/doors."""
