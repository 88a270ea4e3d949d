"""The daemon's process: its sockets, its log, and its life from the start to the signals."""
