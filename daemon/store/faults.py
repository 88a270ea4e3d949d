"""What can be wrong with the store, in words for people and in kinds for policies."""

from __future__ import annotations

from enum import StrEnum

from daemon.errors import McpdError


class Kind(StrEnum):
    """What to do about it differs; everything else stands in the text."""

    UNAVAILABLE = "unavailable"
    """No answer, or none that helps: it may be better in a moment."""
    FULL = "full"
    """No room left; what was written before can still be read."""
    LOCKED = "locked"
    """Somebody else has it and does not let go."""
    READ_ONLY = "read_only"
    """It can be read, not written."""
    CORRUPT = "corrupt"
    """What is there is no store, or a broken one."""
    NEWER_SCHEMA = "newer_schema"
    """A later mcpd has written it: it is left alone."""
    LOST = "lost"
    """What was opened is gone: removed, replaced, emptied, its tables dropped."""
    MISCONFIGURED = "misconfigured"
    """The url cannot work until somebody changes something."""


ADVICE = {
    Kind.UNAVAILABLE: "mcpd serves on from memory and tries again",
    Kind.FULL: "free some space: what is not written yet is kept in memory until then",
    Kind.LOCKED: "end the program that holds it: what is not written yet is kept in memory until then",
    Kind.READ_ONLY: "make it and its directory writable for mcpd: what is not written yet is kept in memory",
    Kind.CORRUPT: "set it aside, or restore it from a backup; mcpd begins with an empty one otherwise",
    Kind.NEWER_SCHEMA: "run that later mcpd, or set state.url to another place: nothing in it was changed",
    Kind.LOST: "mcpd creates it anew and writes what it knows",
    Kind.MISCONFIGURED: "correct state.url in mcpd's configuration, --state-dir, or what they point to",
}
"""What happens next, or what to do: the end of every text."""


class StoreFault(McpdError):
    """An operation of the store did not happen. Holds no password."""

    def __init__(self, kind: Kind, where: str, why: str, advice: str = "") -> None:
        """Say what failed.

        Args:
            kind: what policies go by.
            where: which store, without a password.
            why: the driver's words, or ours.
            advice: what to do, when there is something better than the kind's.
        """
        self.kind = kind
        self.where = where
        super().__init__(f"the store {where} is {_PHRASES[kind]}: {why}. {advice or ADVICE[kind]}")


_PHRASES = {
    Kind.UNAVAILABLE: "not available",
    Kind.FULL: "full",
    Kind.LOCKED: "locked",
    Kind.READ_ONLY: "read-only",
    Kind.CORRUPT: "corrupt",
    Kind.NEWER_SCHEMA: "of a later version",
    Kind.LOST: "gone",
    Kind.MISCONFIGURED: "not usable as configured",
}
