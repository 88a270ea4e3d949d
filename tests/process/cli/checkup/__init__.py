"""Tests of daemon/cli/checkup that start processes or use the network."""
