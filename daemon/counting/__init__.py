"""Counters (`tally`, `measures`), for Prometheus (`readings`, `rendering`) and operators (`summary`)."""
