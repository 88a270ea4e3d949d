"""Tests of the export to a collector."""
