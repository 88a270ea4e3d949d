"""Tests of daemon/main that start processes or use the network."""
