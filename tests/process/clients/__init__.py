"""Tests of daemon/clients that start processes or use the network."""
