"""A server's list as it may be kept and shown: without secrets, and without what nobody can ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from loguru import logger
from msgspec import Raw

from daemon.catalog.listing import MAX_DEFINITION_BYTES, read_definitions, read_tools
from daemon.causes import Cause, Reason
from daemon.kit.wording import counted
from daemon.model import Kind
from daemon.safety.legible import ScreenedList
from daemon.safety.redact import HIDDEN, REASON

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from daemon.model import Definition, Tool
    from daemon.safety.redact import Redactor

QUARANTINED_NAMED = 20
"""How many quarantined or completed definitions of one list are named in the log."""

UNSPEAKABLE = "its name holds a secret of the configuration, so it cannot be called by what may be shown"
"""Why something is quarantined whose name or URI holds a secret."""


class LookedThrough(msgspec.Struct, frozen=True, kw_only=True):
    """A list of one kind after everything was done that takes long with a long one."""

    tools: ScreenedList[Tool]
    """The usable tools; empty in a list of another kind."""
    definitions: ScreenedList[Definition]
    """The usable prompts, resources or templates; empty in a list of tools."""
    quarantined: Mapping[str, str]
    """The names of the others, each with the reason."""

    @property
    def usable(self) -> ScreenedList[Tool] | ScreenedList[Definition]:
        """What can be used, of whatever kind."""
        return self.tools or self.definitions


def looked_through(kind: Kind, server: str, raws: Iterable[Raw], redact: Redactor) -> LookedThrough:
    """Read a list; for a worker thread, so that the registry only compares.

    Secrets are removed first: what is hashed, kept, shown and validated against is the same text without them.
    """
    # A definition that is too large is quarantined unread.
    clean = [_without_secrets(raw, redact) for raw in raws]
    tools: tuple[Tool, ...] = ()
    definitions: tuple[Definition, ...] = ()
    if kind is Kind.TOOL:
        tools, faulty = read_tools(server, clean)
    else:
        definitions, faulty = read_definitions(kind, server, clean)
    read: list[Tool | Definition] = [*tools, *definitions]
    faulty |= {each.name: UNSPEAKABLE for each in read if HIDDEN in each.name}
    return LookedThrough(
        tools=ScreenedList.of(each for each in tools if HIDDEN not in each.name),
        definitions=ScreenedList.of(each for each in definitions if HIDDEN not in each.name),
        quarantined={redact(name): redact(reason, REASON) for name, reason in faulty.items()},
    )


def _without_secrets(raw: Raw, redact: Redactor) -> Raw:
    return raw if len(raw) > MAX_DEFINITION_BYTES else Raw(redact.json(bytes(raw)))


def unusable(kind: Kind, quarantined: Mapping[str, str]) -> Reason:
    """Why nothing is offered from a list in which everything is faulty."""
    name, fault = next(iter(quarantined.items()))
    number = f"{len(quarantined)} {kind}{'s' if len(quarantined) > 1 else ''}"
    text = f"it lists {number}, of which none can be used; {name}: {fault}"
    return Reason(text, Cause.TOOLS_UNUSABLE, {"count": len(quarantined), "tool": name, "error": fault})


class Warnings:
    """Logs what is wrong with one of a server's lists, once for as long as it stays so."""

    def __init__(self, server: str, kind: Kind) -> None:
        """Begin with nothing wrong."""
        self._log = logger.bind(server=server)
        self._kind = kind
        self._problem = ""
        self._quarantined: Mapping[str, str] = {}
        self._completed: tuple[str, ...] = ()

    def of_problem(self, problem: str) -> None:
        """Log why there is no list; what is no tool is looked for again and again where none may be."""
        if problem != self._problem or self._kind is Kind.TOOL:
            self._log.warning("does not list its {}s: {}", self._kind, problem)
        self._problem = problem

    def of(self, looked: LookedThrough) -> None:
        """Log what is wrong with single definitions of a list."""
        self._problem = ""
        self._of_quarantined(looked.quarantined)
        self._of_completed(looked.tools.screened.completed)

    def _of_quarantined(self, quarantined: Mapping[str, str]) -> None:
        """Log what is newly so: a server may list the same a thousand times, or a thousand at a time."""
        known, self._quarantined = self._quarantined, quarantined
        fresh = [(name, reason) for name, reason in quarantined.items() if known.get(name) != reason]
        for name, reason in fresh[:QUARANTINED_NAMED]:
            self._log.warning("{} {} is quarantined: {}", self._kind, name, reason)
        if len(fresh) > QUARANTINED_NAMED:
            more = len(fresh) - QUARANTINED_NAMED
            self._log.warning("{} more {}s are quarantined: `mcpd status --json` has them", more, self._kind)

    def _of_completed(self, completed: tuple[str, ...]) -> None:
        """Log tools whose schema was completed, and again only if they are other tools."""
        known, self._completed = self._completed, completed
        if completed and completed != known:
            more = "" if len(completed) <= QUARANTINED_NAMED else ", …"
            self._log.warning(
                'lists {} without "type": "object" in its inputSchema, which MCP requires; it was added: {}{}',
                counted(len(completed), "tool"),
                ", ".join(completed[:QUARANTINED_NAMED]),
                more,
            )
