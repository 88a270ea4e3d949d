"""Tests of daemon/summaries."""
