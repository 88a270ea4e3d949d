"""Holds servers, tools and categories as frozen snapshots made of facts. No I/O, no clock, no event loop."""
