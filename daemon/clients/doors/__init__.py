"""Where clients come in: the one accept loop, and the doors that make a link of each connection."""
