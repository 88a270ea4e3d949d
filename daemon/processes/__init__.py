"""Processes of this machine: what /proc says, which belong to servers, and which may connect to the daemon."""
