"""Runs the daemon in the background: detached, or by systemd."""
