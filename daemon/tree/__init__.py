"""The supervision tree: `core` and `wiring` make all actors, `running` starts and stops them in order."""
