"""Trust: the definitions of a server that somebody approved, and those held until then (docs/trust.md).

Approvals belong to a server's identity, kind, name and form. A held definition stands in no list of a client's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum

import attrs
import msgspec

from daemon.catalog.forms import Change, change, form_of, parts_changed
from daemon.config.config_model import Config, Server, Trust
from daemon.config.lock_file import LOCK, MEMBERS, LockedServer
from daemon.model import Approval, Definition, Kind, Known

MAX_FORMS = 8
"""Approved forms of one definition that are compared with a new one: a server goes back to an old version."""

MAX_COMPARED = 500
"""New forms of one list that are compared in full, 0.2 ms each; further ones count as changed."""

FIRST = "first list"
"""The author of the approvals of a first list."""


class HeldBecause(StrEnum):
    """Why a definition is held."""

    NEW = "new"
    """Nobody approved a definition of this name."""
    CHANGED = "changed"
    """It differs from each approved form."""
    LOCK = "lock"
    """The lock cannot be read, or does not have the server as it is configured."""
    UNKNOWN = "unknown"
    """The approvals are not known yet: they are in the store."""


class HeldDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A definition that waits for approval."""

    definition: Definition
    because: HeldBecause
    change: Change = {}
    """Empty if there is no approved form, or too much has changed to compare it."""
    before: bytes = b""
    """The approved form that it differs from, as far as known."""


@attrs.frozen(kw_only=True, eq=False)
class Gate:
    """The policy and the approvals that hold a server's definitions."""

    trust: Trust = Trust.ALL
    identity: str = ""
    known: Known | None = attrs.field(factory=dict, repr=False)
    """None: not read yet."""
    locked: LockedServer | None = attrs.field(default=None, repr=False)
    problem: str = ""
    """Why the lock approves nothing, or empty."""

    @property
    def is_open(self) -> bool:
        """Whether nothing is held."""
        return self.trust is Trust.ALL

    def same_as(self, other: Gate) -> bool:
        """Whether both hold the same."""
        same = self.known is other.known and self.locked == other.locked
        return same and (self.trust, self.identity, self.problem) == (
            other.trust,
            other.identity,
            other.problem,
        )

    def approving(self, approvals: Collection[Approval]) -> Gate:
        """The gate with more approvals; the same object without any."""
        return attrs.evolve(self, known=joined(self.known or {}, approvals)) if approvals else self


OPEN = Gate()


def gate_of(server: Server, config: Config, known: Mapping[str, Known] | None) -> Gate:
    """The gate of a configured server; `known` has the approvals by identity, None while unread."""
    identity, trust, lock = server.identity or server.name, server.trust or config.trust, config.lock
    locked = None if lock is None else lock.servers.get(server.name)
    problem = "" if lock is None else lock.problem
    if lock is not None and not problem and (locked is None or locked.identity != identity):
        problem = f"{LOCK} does not have server {server.name} as it is configured"
    approvals = None if known is None else known.get(identity, {})
    return Gate(trust=trust, identity=identity, known=approvals, locked=locked, problem=problem)


def joined(known: Known, approvals: Iterable[Approval]) -> Known:
    """Add approvals; the same object if all are known."""
    merged = dict(known)
    for each in approvals:
        key = each.kind, each.name
        had = merged.get(key, ())
        if all(was.raw != each.raw for was in had):
            merged[key] = (*had, each)[-MAX_FORMS:]
    return (
        known
        if len(merged) == len(known) and all(merged[key] is each for key, each in known.items())
        else merged
    )


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A list after its server's gate."""

    listed: Mapping[str, Definition]
    offered: Mapping[str, Definition]
    """The same object as was judged if nothing is held."""
    held: Mapping[str, HeldDefinition] = {}
    approved: tuple[Approval, ...] = ()
    """New approvals, of a first list or by the lock."""


def judged(
    gate: Gate, kind: Kind, listed: Mapping[str, Definition], at: float, *, begins: bool = True
) -> Judged:
    """Split a list into what is offered and what is held; `begins`: it may be the server's first list."""
    if gate.is_open or kind not in MEMBERS:
        return Judged(listed=listed, offered=listed)
    if gate.problem or gate.known is None:
        because = HeldBecause.LOCK if gate.problem else HeldBecause.UNKNOWN
        held = {name: HeldDefinition(definition=each, because=because) for name, each in listed.items()}
        return Judged(listed=listed, offered={}, held=held)
    if gate.locked is None and gate.trust is Trust.CHANGES and (kind, "") not in gate.known:
        begins = bool(listed) or kind is not Kind.TOOL
        return Judged(listed=listed, offered=listed, approved=_first(gate, kind, listed, at) if begins else ())
    left = iter(range(MAX_COMPARED))
    find = _held_by_lock if gate.locked is not None else _held_by_approvals
    held = {name: found for name, each in listed.items() if (found := find(gate, each, left)) is not None}
    offered = {name: each for name, each in listed.items() if name not in held} if held else listed
    return Judged(listed=listed, offered=offered, held=held, approved=_by_lock(gate, offered, at))


def _first(gate: Gate, kind: Kind, listed: Mapping[str, Definition], at: float) -> tuple[Approval, ...]:
    """The approvals of a first list."""
    taken = Approval(identity=gate.identity, kind=kind, name="", by=FIRST, at=at)
    return (taken, *(approval(gate, each, FIRST, at) for each in listed.values()))


def approval(gate: Gate, definition: Definition, by: str, at: float) -> Approval:
    """The approval of a definition as it is."""
    return Approval(
        identity=gate.identity, kind=definition.kind, name=definition.name, raw=definition.raw, by=by, at=at
    )


def _held_by_approvals(gate: Gate, each: Definition, left: Iterator[int]) -> HeldDefinition | None:
    assert gate.known is not None
    return _compared(each, gate.known.get((each.kind, each.name), ()), left)


def _compared(each: Definition, forms: tuple[Approval, ...], left: Iterator[int]) -> HeldDefinition | None:
    """The definition as held; None if it is in an approved form, or differs in nothing that counts."""
    if any(was.raw == each.raw for was in forms):
        return None
    if not forms:
        return HeldDefinition(definition=each, because=HeldBecause.NEW)
    latest = forms[-1].raw
    if next(left, None) is None:
        return HeldDefinition(definition=each, because=HeldBecause.CHANGED, before=latest)
    found: Change = {}
    for was in forms:
        found = change(each.kind, was.raw, each.raw)
        if not found:
            return None
    return HeldDefinition(definition=each, because=HeldBecause.CHANGED, change=found, before=latest)


def _held_by_lock(gate: Gate, each: Definition, left: Iterator[int]) -> HeldDefinition | None:
    assert gate.locked is not None
    assert gate.known is not None
    line = gate.locked.line(each.kind, each.name)
    if line is None:
        return HeldDefinition(definition=each, because=HeldBecause.NEW)
    form = form_of(each.kind, each.raw)
    if form.digest == line.hash:
        return None
    known = gate.known.get((each.kind, each.name), ())
    if same := tuple(was for was in known if form_of(was.kind, was.raw).digest == line.hash):
        return _compared(each, same, left)
    found = {what: names for what, names in parts_changed(line.parts, form.parts).items() if names}
    return HeldDefinition(definition=each, because=HeldBecause.CHANGED, change=found)


def _by_lock(gate: Gate, offered: Mapping[str, Definition], at: float) -> tuple[Approval, ...]:
    """The definitions that the lock approves, kept to compare later forms with."""
    if gate.locked is None or gate.known is None:
        return ()
    return tuple(
        approval(gate, each, LOCK, at)
        for each in offered.values()
        if (line := gate.locked.line(each.kind, each.name)) is not None
        and all(
            form_of(was.kind, was.raw).digest != line.hash for was in gate.known.get((each.kind, each.name), ())
        )
    )
