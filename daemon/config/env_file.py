"""Files of `KEY=VALUE` lines: `env` beside the configuration, as systemd reads it, and `envFile` of servers."""

from __future__ import annotations


def read_env(text: str) -> dict[str, str]:
    """The variables of a file, as `EnvironmentFile=` of systemd.exec(5) reads them.

    Raises:
        ValueError: a line is no assignment; the text names the line and nothing of what stands in it.
    """
    raise NotImplementedError


def with_variable(text: str, name: str, value: str) -> str:
    """The text of such a file with a variable set: replaced where it stands, else added at the end."""
    raise NotImplementedError
