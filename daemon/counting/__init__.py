"""Numbers for Prometheus: what there is (`table`), what it is now (`readings`), as text (`rendering`)."""
