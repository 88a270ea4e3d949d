"""Tests of daemon/transports that start processes or use the network."""
