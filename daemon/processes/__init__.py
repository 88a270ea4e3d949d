"""Processes: started, marked, watched, ended; and access checks for the peers of mcpd's sockets."""
