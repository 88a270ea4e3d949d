"""`python -m daemon` is `mcpd`."""

from daemon.cli import main

main()
