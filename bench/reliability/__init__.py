"""The promises of reliability, measured with the real daemon. `python -m bench.reliability --help` says how."""
