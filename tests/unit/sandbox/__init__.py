"""Tests of `daemon/sandbox`."""
