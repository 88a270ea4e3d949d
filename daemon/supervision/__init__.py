"""Supervision: children that are restarted with backoff, each behind an exception boundary."""
