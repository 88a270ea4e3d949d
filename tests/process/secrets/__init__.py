"""Tests of `daemon/secrets`."""
