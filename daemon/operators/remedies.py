"""What happened to a server that is not well, and what helps: two tables of data, and the code that reads them.

`remedies.toml` is keyed by the cause in the server's status. If that only says that a program ended or kept
silent, its last lines on stderr tell more (`words.toml`). Shared by the command line and the console. Standard
library only: `mcpd status --json` is run by watchers.
"""

from __future__ import annotations

import re
import signal
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LINES = 60
"""Last lines of stderr that are read: a stack trace of node puts some 15 below the line that matters."""

LINE = 400
"""Characters of a line that are read: servers may write lines of any length, and matching takes longer then."""

SHOWN = 120
"""Most characters that a remedy quotes of a text from outside."""

BY_SIGNAL = 128
"""A shell reports that signal n ended what it ran as this + n."""

_OPEN = frozenset({"ended", "exited", "connection-lost", "handshake-timeout", "handshake-refused"})
"""Causes that do not say what went wrong inside the program, ..."""

_OPEN_SIGNALS = frozenset({"SIGABRT", "SIGTRAP"})
"""... and signals that do not either: a runtime that aborts has usually said why."""


class Remedy(NamedTuple):
    """What happened and what to do, a sentence or two each."""

    happened: str
    """What happened."""
    helps: str
    """What to do about it."""
    waits: bool = False
    """Whether the server waits for what its entry cannot bring: a login, a variable, a service, the network."""


def needs_words(seen: Mapping[str, Any]) -> bool:
    """Whether the last lines of a server's stderr can say more than its cause does.

    Args:
        seen: the server as `mcpd status --json` shows it.
    """
    cause, data = seen.get("cause"), seen.get("causeData") or {}
    return cause in _OPEN or (cause == "killed" and data.get("signal") in _OPEN_SIGNALS)


def remedy(server: str, seen: Mapping[str, Any], stderr: Sequence[str]) -> Remedy | None:
    """What is known about a server that is not well.

    Args:
        server: its name.
        seen: as `mcpd status --json` shows it; without a cause it is an older daemon's, or well.
        stderr: its last lines, oldest first.

    Returns:
        None if nothing is known beyond the reason in its status.
    """
    return said(server, seen, stderr) or _by_cause(server, seen.get("cause") or "", seen.get("causeData") or {})


def said(server: str, seen: Mapping[str, Any], stderr: Sequence[str]) -> Remedy | None:
    """What a server's own last words say; arguments as for `remedy`, None if they say nothing that is known."""
    if not needs_words(seen):
        return None
    # A program that prints its usage does so on stdout, too.
    first = (seen.get("noise") or {}).get("first")
    return _by_words(server, [*([first] if first else []), *stderr])


def _by_cause(server: str, cause: str, data: Mapping[str, Any]) -> Remedy | None:
    status = data.get("status", 0)
    if cause == "exited" and status > BY_SIGNAL and status - BY_SIGNAL in set(signal.Signals):
        cause, data = "killed", {"signal": signal.Signals(status - BY_SIGNAL).name}
    for entry in table("remedies").get(cause, ()):
        if all(data.get(key) in values for key, values in entry.get("when", {}).items()):
            try:
                return _filled(entry, (), {**data, "server": server})
            except KeyError:
                # This entry needs data that the cause does not carry this time.
                continue
    return None


def _by_words(server: str, stderr: Sequence[str]) -> Remedy | None:
    """The remedy of the first pattern that matches a line, filled from the last line that it matches."""
    lines = [line[:LINE] for line in stderr[: -LINES - 1 : -1]]
    for entry in table("words")["words"]:
        pattern = re.compile(entry["pattern"])
        if match := next(filter(None, map(pattern.search, lines)), None):
            said = tuple((group or "").strip() for group in match.groups())
            return _filled(entry, said, {"server": server})
    return None


@cache
def table(name: str) -> dict[str, list[dict[str, Any]]]:
    """One of the tables beside this module."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))


def _filled(entry: Mapping[str, Any], said: Sequence[str], data: Mapping[str, Any]) -> Remedy:
    shown = {key: value[:SHOWN] if isinstance(value, str) else value for key, value in data.items()}
    words = [text[:SHOWN] for text in said]
    happened, helps = (_sentence(entry[key].format(*words, **shown)) for key in ("happened", "helps"))
    return Remedy(happened, helps, waits=entry.get("waits", False))


def _sentence(text: str) -> str:
    """The text with a full stop, even if a group at its end matched nothing."""
    whole = text.rstrip(" :")
    return whole if whole.endswith((".", "!", "?")) else f"{whole}."
