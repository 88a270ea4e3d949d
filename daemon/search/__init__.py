"""The search for tools: an index in memory, never a remote call. No clock, no event loop."""
