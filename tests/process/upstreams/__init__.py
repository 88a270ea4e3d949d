"""Tests of daemon/upstreams."""
