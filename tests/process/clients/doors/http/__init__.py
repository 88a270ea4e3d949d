"""Tests of daemon/clients/doors/http that start processes or use the network."""
