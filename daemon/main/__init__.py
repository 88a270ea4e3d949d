"""The daemon's process: its sockets, its log, its life between start and signals."""
