"""What happened to a server that is not well, and what helps: two tables of data, and the code that reads them.

`remedies.toml` is keyed by the cause. If that only says that a program ended or kept silent, its last lines on
stderr tell more (`words.toml`). Operators and models are told the same.
"""

from __future__ import annotations

import re
import signal
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from daemon.causes import Cause, Reason, Remedy
from daemon.config.labels import server_of

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

_OPEN = frozenset(
    {Cause.ENDED, Cause.EXITED, Cause.CONNECTION_LOST, Cause.HANDSHAKE_TIMEOUT, Cause.HANDSHAKE_REFUSED}
)
"""Causes that do not say what went wrong inside the program, ..."""

_OPEN_SIGNALS = frozenset({"SIGABRT", "SIGTRAP"})
"""... and signals that do not either: a runtime that aborts has usually said why."""


def needs_words(reason: Reason) -> bool:
    """Whether the last lines of a server's stderr can say more than its cause does."""
    is_open = reason.cause is Cause.KILLED and reason.data.get("signal") in _OPEN_SIGNALS
    return is_open or reason.cause in _OPEN


def by_words(name: str, reason: Reason, words: Sequence[str]) -> Reason:
    """The reason with the remedy that a server's own last words tell; as it was if they tell none.

    Sixty patterns over sixty lines take 10 ms, and 250 ms if a server means harm: run it in a thread.

    Args:
        name: the server's name, or that of one of its instances.
        reason: why its run ended.
        words: its last lines without secrets, oldest first.
    """
    lines = [line[:LINE] for line in words[: -LINES - 1 : -1]]
    for entry in table("words")["words"] if needs_words(reason) else ():
        pattern = re.compile(entry["pattern"])
        if match := next(filter(None, map(pattern.search, lines)), None):
            said = tuple((group or "").strip() for group in match.groups())
            return attrs.evolve(reason, remedy=_filled(entry, said, _named(name), by_words=True))
    return reason


def by_cause(name: str, reason: Reason) -> Reason:
    """The reason with the remedy of its cause, unless it has one already or nothing is known of the cause.

    Args:
        name: the server's name, or that of one of its instances.
        reason: without secrets.
    """
    if reason.cause is None or reason.remedy is not None:
        return reason
    cause, data = reason.cause, reason.data
    status = data.get("status", 0)
    if cause is Cause.EXITED and isinstance(status, int) and status - BY_SIGNAL in set(signal.Signals):
        cause, data = Cause.KILLED, {"signal": signal.Signals(status - BY_SIGNAL).name}
    for entry in table("remedies")[cause]:
        if all(data.get(key) in values for key, values in entry.get("when", {}).items()):
            try:
                return attrs.evolve(reason, remedy=_filled(entry, (), {**data, **_named(name)}))
            except KeyError:
                # This entry needs data that the cause does not carry this time.
                continue
    return reason


@cache
def table(name: str) -> dict[str, list[dict[str, Any]]]:
    """One of the tables beside this module; reading one takes 4 ms, once."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))


def _named(name: str) -> dict[str, str]:
    """What commands call it: one logs in to a server, and restarts an instance."""
    return {"server": name, "whole": server_of(name)}


def _filled(
    entry: Mapping[str, Any], said: Sequence[str], data: Mapping[str, Any], *, by_words: bool = False
) -> Remedy:
    shown = {key: value[:SHOWN] if isinstance(value, str) else value for key, value in data.items()}
    words = [text[:SHOWN] for text in said]
    happened, helps = (_sentence(entry[key].format(*words, **shown)) for key in ("happened", "helps"))
    return Remedy(happened, helps, entry.get("waits", False), by_words)


def _sentence(text: str) -> str:
    """The text with a full stop, even if a group at its end matched nothing."""
    whole = text.rstrip(" :")
    return whole if whole.endswith((".", "!", "?")) else f"{whole}."
