"""Tests of daemon/processes that start processes or use the network."""
