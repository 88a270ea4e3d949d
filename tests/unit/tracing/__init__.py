"""Tests of traces of calls, and of their export."""
