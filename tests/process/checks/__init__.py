"""Tests of daemon/checks that start processes or use the network."""
