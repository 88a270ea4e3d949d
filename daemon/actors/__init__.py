"""The actors, one module each, which never import each other: they meet in facts, ports and the catalog."""
