"""The life of the daemon: its command line, its sockets, its signals, and its own log."""
