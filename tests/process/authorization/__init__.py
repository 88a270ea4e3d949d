"""Tests of daemon/authorization against authorization servers that nobody here wrote."""
