"""Tests of daemon/bridge."""
