"""Tests of daemon/upstreams/transports that start processes or use the network."""
