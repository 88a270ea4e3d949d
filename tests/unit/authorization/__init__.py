"""Tests of daemon/authorization."""
