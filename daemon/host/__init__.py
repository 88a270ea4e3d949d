"""The interface to the machine: paths, sockets, signals, systemd, logging."""
