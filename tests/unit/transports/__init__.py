"""Tests of daemon.transports."""
