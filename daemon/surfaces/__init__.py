"""Surfaces decide which tools a client lists and what its calls do. They are pure; the call path acts."""
