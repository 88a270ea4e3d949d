"""Entries of servers as other clients write them, in mcpd's keys: what each of their keys means here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping


@attrs.frozen(kw_only=True)
class Note:
    """One key that was understood as something else, or that could not be taken."""

    key: str
    """The key of the entry, or a trail within it: `timeout`, `env.PORT`."""
    message: str
    """What it was taken as, or why it was not and what to do: a sentence."""
    lost: bool = False
    """Whether its meaning could not be taken over."""


@attrs.frozen(kw_only=True)
class Translated:
    """A server's entry in mcpd's keys."""

    entry: Mapping[str, Any] = attrs.field(repr=False)
    """The entry; values of keys that mcpd has are as they were."""
    notes: tuple[Note, ...] = ()
    """What was understood as something else."""


def translated(entry: Mapping[str, Any], *, milliseconds: bool | None = None) -> Translated:
    """An entry of any common client in mcpd's keys.

    Args:
        entry: the decoded object; unknown keys stay as they are.
        milliseconds: whether the client's `timeout` is in milliseconds; None: judged by its size.
    """
    raise NotImplementedError
