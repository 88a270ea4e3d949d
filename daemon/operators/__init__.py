"""What operators may ask of the daemon: one file per command, listed in `table`."""
