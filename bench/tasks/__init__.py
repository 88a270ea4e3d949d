"""Measures the cost of tasks for a model's context on each surface. See `python -m bench.tasks --help`."""
