"""Tests of `daemon.clients.permissions`."""
