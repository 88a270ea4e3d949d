"""Tests of instances."""
