"""Tests of `daemon/sandbox` with real processes."""
