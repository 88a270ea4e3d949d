"""One server, as those see it who want something of it."""
