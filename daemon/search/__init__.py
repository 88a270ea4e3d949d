"""Finding tools: an index in memory, never a remote call. No I/O, no clock, no event loop."""
