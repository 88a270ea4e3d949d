"""Tests of daemon/clients/doors that start processes or use the network."""
