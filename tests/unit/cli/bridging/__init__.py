"""Tests of daemon/cli/bridging."""
