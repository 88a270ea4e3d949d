"""Tests of `daemon.setup.running` that start processes."""
