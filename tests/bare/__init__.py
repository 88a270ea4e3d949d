"""The first five minutes on a bare Debian, with real agents: `scripts/bare-debian` is where they run."""
