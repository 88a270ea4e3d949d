"""The units, in a machine that was booted for it: `make systemd`."""
