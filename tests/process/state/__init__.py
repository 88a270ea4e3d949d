"""Tests of daemon/state that start processes or use the network."""
