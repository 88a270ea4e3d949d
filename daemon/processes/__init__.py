"""Processes of this machine: what the kernel tells of them, which are a server's, and which may talk to us."""
