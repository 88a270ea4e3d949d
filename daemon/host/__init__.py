"""The machine around the daemon: paths, sockets, signals, systemd, logging, memory."""
