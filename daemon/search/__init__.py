"""The search for tools: an index in memory, without remote calls, clock or event loop."""
