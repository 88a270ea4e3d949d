"""The actors, in one module each. They never import each other; they share facts, ports and the catalog."""
