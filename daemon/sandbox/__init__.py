"""Confines servers: the files, network and system calls that a server may use."""
