"""Tests of daemon/cli/doctor that start processes or use the network."""
