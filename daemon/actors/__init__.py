"""The actors of the daemon, one module each.

They never import each other: they meet through facts, ports and the catalog, and only `daemon.tree` knows all.
"""
