"""Counters (`tally`, `measures`), and their export to Prometheus (`readings`, `prometheus`) and operators."""
