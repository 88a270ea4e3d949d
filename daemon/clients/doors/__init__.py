"""The entrances for clients: one accept loop, and doors that turn each connection into a link."""
