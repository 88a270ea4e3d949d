"""`mcpd approve`: the definitions that wait for approval, and their approval (docs/trust.md)."""

from __future__ import annotations

import pwd
from contextlib import suppress
from typing import Any

import msgspec
import trio

from daemon.catalog.kinds import switched_by
from daemon.catalog.snapshot import WHOLE
from daemon.catalog.trust import HeldDefinition
from daemon.config.lock_file import MEMBERS
from daemon.operators.base import Command, OperatorContext, Refused
from daemon.operators.news import held_report, members_differing, waiting, word_of
from daemon.operators.switch import check_listed, key_of

SHOWN = 20  # definitions with their whole differences in an answer: a person reads some, and names others
NAME_SECONDS = 2.0  # for looking up a user's name, which may come from another machine


class ApproveParams(msgspec.Struct):
    """The definitions that are wanted."""

    names: tuple[str, ...] = ()
    """`SERVER`, `SERVER/TOOL`, `SERVER/prompt:NAME` or `SERVER/template:TEMPLATE`; empty for everything."""
    approve: bool = False
    """Whether to approve them, in the forms that they have now."""
    difference: bool = False
    """Whether the answer has the whole difference of what waits (the first `SHOWN`)."""


async def approve(context: OperatorContext, params: ApproveParams) -> dict[str, object]:
    """The definitions that were approved, and those that wait or changed meanwhile; raises `McpdError`."""
    keys = {name: _key_of(context, name) for name in params.names}
    wanted, catalog = {*keys.values()}, context.catalog
    found = [held for held in waiting(catalog) if not wanted or not wanted.isdisjoint(_keys(held))]
    known = {key for held in found for key in _keys(held)}
    done: set[int] = set()
    if params.approve and found:
        by = await _operator(context)
        done = {*map(id, await context.approver.approve([held.definition for held in found], by))}
    left = [held for held in waiting(context.catalog) if _keys(held)[0] in known]
    whole = SHOWN if params.difference else 0
    return {
        "approved": [_row(held) for held in found if id(held.definition) in done],
        "waiting": [_row(held, whole=place < whole) for place, held in enumerate(left)],
        "idle": [name for name, key in keys.items() if key not in known],
    }


APPROVE = Command("approve", ApproveParams, approve)


def _row(held: HeldDefinition, *, whole: bool = False) -> dict[str, Any]:
    more = {"difference": members_differing(held)} if whole else {}
    return {"server": held.definition.server, "name": word_of(held), **held_report(held), **more}


def _keys(held: HeldDefinition) -> tuple[tuple[str, str], tuple[str, str]]:
    return (held.definition.server, word_of(held)), (held.definition.server, WHOLE)


def _key_of(context: OperatorContext, name: str) -> tuple[str, str]:
    key = key_of(context.catalog, name)
    kind, _ = switched_by(key[1])
    if kind not in MEMBERS:
        raise Refused(f"a {kind} needs no approval: only tools, prompts and resource templates wait for one")
    check_listed(context, key, "are approved")
    return key


async def _operator(context: OperatorContext) -> str:
    uid = None if context.operator is None else context.operator.uid
    if uid is None:
        return "an operator"
    with trio.move_on_after(NAME_SECONDS), suppress(KeyError):
        return (await trio.to_thread.run_sync(pwd.getpwuid, uid, abandon_on_cancel=True)).pw_name
    return f"uid {uid}"
