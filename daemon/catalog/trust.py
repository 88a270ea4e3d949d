"""Trust: separates approved definitions of a server from those held until approval (docs/trust.md)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

import attrs
import msgspec

from daemon.config.config_model import Config, Server, Trust
from daemon.config.lock_file import LOCK, MEMBERS, LockedLine, LockedServer
from daemon.kit.later import later
from daemon.model import Approval, Definition, Kind, Known

if TYPE_CHECKING:
    from daemon.catalog import forms
    from daemon.catalog.forms import Change
else:  # Daemons without trust compare nothing.
    forms = later("daemon.catalog.forms", due=True)

MAX_FORMS = 8
"""Approved forms of a definition that a new form is compared with: servers may return to older versions."""

FIRST = "first list"
"""Recorded as the author of the approvals for a first list."""


class HeldBecause(StrEnum):
    """Why a definition is held."""

    NEW = "new"
    """Nobody approved a definition of this name."""
    CHANGED = "changed"
    """The definition differs from each approved form."""
    LOCK = "lock"
    """The lock cannot be read, or does not have the server as configured."""
    UNKNOWN = "unknown"
    """The approvals are in the store and not read yet."""


class HeldDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A definition that waits for approval."""

    definition: Definition
    because: HeldBecause
    change: Change = {}
    """The changes; empty without an approved form, or if there is too much to compare."""
    before: bytes = b""
    """The approved form that the definition differs from, if it is known."""


@attrs.frozen(kw_only=True)
class Gate:
    """The policy and the approvals that decide which definitions of a server are held."""

    trust: Trust = Trust.ALL
    identity: str = ""
    known: Known | None = attrs.field(factory=dict, repr=False, eq=id)
    """The approvals; None until they are read."""
    locked: LockedServer | None = attrs.field(default=None, repr=False)
    is_barred: bool = False
    """Whether the lock cannot be read, or does not have the server as configured: it approves nothing."""

    @property
    def is_open(self) -> bool:
        """Whether no definition is held."""
        return self.trust is Trust.ALL

    def approving(self, approvals: Collection[Approval]) -> Gate:
        """The gate with more approvals; the same object if there are none."""
        return attrs.evolve(self, known=joined(self.known or {}, approvals)) if approvals else self

    def approval_of(self, definition: Definition) -> Approval | None:
        """The latest approval of an equivalent form; None if there is none, or if nothing is held."""
        known = () if self.is_open else (self.known or {}).get((definition.kind, definition.name), ())
        same = (each for each in reversed(known) if not forms.change(each.kind, each.raw, definition.raw))
        return next(same, None)


OPEN = Gate()


def gate_of(server: Server, config: Config, known: Mapping[str, Known] | None) -> Gate:
    """Make a server's gate; `known` has the approvals by identity, or is None until they are read."""
    identity, trust, lock = server.identity, server.trust or config.trust, config.lock
    locked = None if lock is None else lock.servers.get(server.name)
    is_barred = lock is not None and (locked is None or locked.identity != identity)
    approvals = None if known is None else known.get(identity, {})
    return Gate(trust=trust, identity=identity, known=approvals, locked=locked, is_barred=is_barred)


def joined(known: Known, approvals: Iterable[Approval]) -> Known:
    """Add approvals; the same object if all are known."""
    merged = dict(known)
    for each in approvals:
        key = each.kind, each.name
        had = merged.get(key, ())
        if all(was.raw != each.raw for was in had):
            merged[key] = (*had, each)[-MAX_FORMS:]
    return known if merged == known else merged


def judged(
    gate: Gate, kind: Kind, listed: Mapping[str, Definition], at: float
) -> tuple[Mapping[str, HeldDefinition], Gate]:
    """The held definitions of a list, and the gate with the approvals of a first list or the lock."""
    if gate.is_open or kind not in MEMBERS:
        return {}, gate
    if gate.is_barred or gate.known is None:
        because = HeldBecause.LOCK if gate.is_barred else HeldBecause.UNKNOWN
        return {name: HeldDefinition(definition=each, because=because) for name, each in listed.items()}, gate
    approved: list[Approval] = []
    if gate.locked is None and gate.trust is Trust.CHANGES and (kind, "") not in gate.known:
        # A server may list its tools late, and prompts that come later are new.
        if listed or kind is not Kind.TOOL:
            approved.append(Approval(identity=gate.identity, kind=kind, name="", by=FIRST, at=at))
        approved += [approval(gate, each, FIRST, at) for each in listed.values()]
        return {}, gate.approving(approved)
    work, held = forms.Comparing(), dict[str, HeldDefinition]()
    for name, each in listed.items():
        known, line = gate.known.get((kind, name), ()), None
        if gate.locked is not None:
            line = gate.locked.lines(kind).get(name)
            hash_ = "" if line is None else line.hash
            known = tuple(was for was in known if work.digest(kind, was.raw) == hash_)
            if work.digest(kind, each.raw) == hash_:
                # Later forms are compared with it.
                approved += [] if known else [approval(gate, each, LOCK, at)]
                continue
        if (found := _compared(each, known, line, work)) is not None:
            held[name] = found
    return held, gate.approving(approved)


def approval(gate: Gate, definition: Definition, by: str, at: float) -> Approval:
    """Make the approval of a definition in its present form."""
    return Approval(
        identity=gate.identity, kind=definition.kind, name=definition.name, raw=definition.raw, by=by, at=at
    )


def _compared(
    each: Definition, known: tuple[Approval, ...], line: LockedLine | None, work: forms.Comparing
) -> HeldDefinition | None:
    """The definition as held; None if no difference from an approved form counts."""
    if any(was.raw == each.raw for was in known):
        return None
    if not known and line is None:
        return HeldDefinition(definition=each, because=HeldBecause.NEW)
    found = None if line is None or known else work.changed_since(line.parts, each.kind, each.raw)
    for was in known:
        found = work.change(each.kind, was.raw, each.raw)
        if found is not None and not found:
            return None
    before = known[-1].raw if known else b""
    return HeldDefinition(definition=each, because=HeldBecause.CHANGED, change=found or {}, before=before)
