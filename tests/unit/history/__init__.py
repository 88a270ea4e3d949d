"""Tests of what is kept of what happened."""
