"""The supervision tree: `core` makes what all actors need, `running` makes, starts and stops these in order."""
