"""The actors: registry, upstream, session, front, control.

They never import each other: they meet through facts, ports and the catalog, and only `daemon.tree` knows all.
"""
