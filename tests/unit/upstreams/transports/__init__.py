"""Tests of daemon.upstreams.transports."""
