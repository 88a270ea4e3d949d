"""The daemon in the background: started once for all who want it, stopped, or run by systemd."""
