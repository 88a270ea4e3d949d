"""Tests of `daemon/supervision`."""
