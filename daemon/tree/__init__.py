"""The supervision tree: `core` creates what all actors need, `running` starts and stops them in order."""
