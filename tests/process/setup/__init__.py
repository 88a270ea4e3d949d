"""Tests of `daemon.setup` that start processes."""
