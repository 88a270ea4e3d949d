"""The actors, in one module each. They never import each other, and meet in facts, ports and the catalog."""
