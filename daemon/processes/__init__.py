"""Processes: started, marked, watched, ended; and the peers of our sockets."""
