"""Tests of daemon/summaries that start processes or use the network."""
