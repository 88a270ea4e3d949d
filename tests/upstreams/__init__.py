"""Tests of `daemon/upstreams`."""
