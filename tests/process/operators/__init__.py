"""Tests of instances, with real children."""
