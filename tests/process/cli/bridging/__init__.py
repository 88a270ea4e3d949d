"""Tests of daemon/cli/bridging that start processes or use the network."""
