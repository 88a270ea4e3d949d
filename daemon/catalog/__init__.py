"""Servers, tools and categories as frozen snapshots, folded from facts. No I/O, no clock, no event loop."""
