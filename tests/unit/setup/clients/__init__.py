"""Tests of `daemon.setup.clients`."""
