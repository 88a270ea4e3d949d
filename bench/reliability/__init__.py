"""Measures the promises of reliability with the daemon. See `python -m bench.reliability --help`."""
