"""Tests of daemon/actors that start processes or use the network."""
