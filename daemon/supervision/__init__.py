"""Supervision: children restarted with backoff, each behind an exception boundary."""
