"""One client: how its requests are served, what its session has loaded, and what it is told of changes."""
