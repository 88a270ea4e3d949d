"""Children that are started again and again: each behind a boundary, all in their turn."""
