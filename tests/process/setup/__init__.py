"""Tests of daemon/cli that start processes or use the network."""
