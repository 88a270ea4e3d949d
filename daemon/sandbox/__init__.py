"""Confines servers: files, network and system calls that a server may use."""
