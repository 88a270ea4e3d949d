"""Tests of daemon/bridge that start processes or use the network."""
