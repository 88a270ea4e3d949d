"""Tests of the same shape, that start processes, use the network or a database server."""
