"""Tests of `daemon/processes`."""
