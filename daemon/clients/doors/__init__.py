"""The entrances for clients: one accept loop, and the doors that turn each connection into a link."""
