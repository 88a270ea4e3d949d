"""Tests of tests/fuzz."""
