"""Tests of daemon/wire that start processes or use the network."""
