"""Counters (`tally`, `measures`), for Prometheus (`readings`, `prometheus`) and operators."""
