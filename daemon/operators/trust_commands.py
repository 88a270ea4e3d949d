"""`mcpd approve` and `mcpd lock`: approve waiting definitions, and write a team's approvals to a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from daemon.catalog.kinds import path_of, switch_of, switched_by
from daemon.catalog.trust import HeldDefinition
from daemon.config.lock_file import MEMBERS, Lock, LockedPackage
from daemon.errors import McpdError, UpstreamUnavailable
from daemon.kit.later import later
from daemon.kit.waiting import keep_latest
from daemon.operators.base import Command, OperatorContext, Refused
from daemon.operators.news import held_report, members_differing, waiting
from daemon.operators.own_requests import known_server
from daemon.operators.server_changes import Whereabouts, check_listed, key_of, own_instance, unkept
from daemon.states import ServerState

if TYPE_CHECKING:
    from daemon.catalog.entry import ServerEntry
    from daemon.setup import locking
else:  # Most daemons never write a lock.
    locking = later("daemon.setup.locking")

SHOWN = 20  # definitions with their whole differences in an answer: a person reads some, and names others
MAX_SHOWN = 10_000  # forms that were shown, latest first to stay: as many as one list has


class ApproveParams(msgspec.Struct):
    """Selects definitions that wait for approval."""

    names: tuple[str, ...] = ()
    """`SERVER`, `SERVER/TOOL`, `SERVER/prompt:NAME`, also `template:` and `skill:`; empty for everything."""
    approve: bool = False
    """Whether to approve the current forms, except forms that differ from those last shown to the operator."""
    forms: Mapping[str, str] = {}
    """The forms that the operator was shown (`schemaHash`), by `SERVER/NAME`; only these are approved."""
    shown: bool = False
    """Whether to approve only definitions that the operator has been shown."""
    difference: bool = False
    """Whether the answer contains the whole differences of the first `SHOWN` waiting definitions."""


async def approve(context: OperatorContext, params: ApproveParams) -> dict[str, Any]:
    """Approve definitions; returns these, and those that wait or changed meanwhile; raises `McpdError`."""
    forms, shown = params.forms, context.approver.shown
    keys = {name: name for name in forms} or {name: _key_of(context, name) for name in params.names}
    wanted = {*keys.values()}
    uid = None if context.operator is None else context.operator.uid

    def selected() -> dict[str, HeldDefinition]:
        found = waiting(*context.catalog.servers.values())
        return {key: found[key] for key in found if not wanted or wanted & {key, found[key].definition.server}}

    found, done = selected(), set[str]()
    if params.approve:
        unseen = "" if forms or params.shown else None
        seen = {key: forms.get(key, unseen) if forms else shown.get((uid, key), unseen) for key in found}
        both = [(held.definition, seen[key]) for key, held in found.items()]
        # Somebody who was shown another form has not agreed to this one.
        agreed = [each for each, form in both if form in {each.schema_hash, None}]
        done = {*map(path_of, await context.approver.approve(agreed, context.principal))}
    left = {key: held for key, held in selected().items() if key in found}
    for key in found:
        shown.pop((uid, key), None)
    for key, held in left.items():
        keep_latest(shown, (uid, key), held.definition.schema_hash, MAX_SHOWN)
    whole, servers = SHOWN if params.difference else 0, {held.definition.server for held in found.values()}
    return {
        "approved": [_row(held) for key, held in found.items() if key in done],
        "waiting": [_row(held, whole=place < whole) for place, held in enumerate(left.values())],
        "idle": [name for name, key in keys.items() if key not in found and key not in servers],
        "note": await unkept(context) if done and context.catalog.config.lock is None else "",
    }


APPROVE = Command("approve", ApproveParams, approve)


def _row(held: HeldDefinition, *, whole: bool = False) -> dict[str, Any]:
    it, more = held.definition, {"difference": members_differing(held)} if whole else {}
    name = {"server": it.server, "name": switch_of(it.kind, it.name), "schemaHash": it.schema_hash}
    return {**name, **held_report(held), **more}


def _key_of(context: OperatorContext, name: str) -> str:
    key = key_of(context.catalog, name)
    kind, _ = switched_by(key[1])
    if kind not in MEMBERS:
        raise Refused(f"a {kind} needs no approval: mcpd never holds one")
    check_listed(context, key, "are approved")
    return "/".join(filter(None, key))


class LockParams(Whereabouts, kw_only=True):
    """Servers with their packages; whether these are all servers; `approve` also writes held definitions."""

    servers: dict[str, dict[str, LockedPackage]]
    are_all: bool
    check: bool
    approve: bool
    seconds: float


async def lock(context: OperatorContext, params: LockParams) -> dict[str, object]:
    """List the servers, started if needed, then write or compare `mcpd.lock`; raises CannotApprove."""
    found: dict[str, ServerEntry | str] = {}

    async def look(server: str) -> None:
        found[server] = await _listed_now(context, params, server)

    async with trio.open_nursery() as nursery:
        for server in params.servers:
            nursery.start_soon(look, server)
    entries = {name: each for name, each in found.items() if not isinstance(each, str)}
    failed = {name: context.redact.of(name)(each) for name, each in found.items() if isinstance(each, str)}
    now = locking.ServersNow(context.config.mcp_servers, entries, params.servers)
    if params.check:
        differences = locking.drift(context.config.lock or Lock(), now, are_all=params.are_all)
        return {"failed": failed, "drift": await trio.to_thread.run_sync(list, differences)}
    removed: list[str] = []

    def change(content: locking.Content) -> None:
        removed.extend(locking.renew(content, now.servers) if params.are_all else ())
        locking.offer(content, now, approve=params.approve)

    written = await context.approver.rewrite(change)
    waits = [each.definition.server for each in waiting(*context.catalog.servers.values()).values()]
    left = {name: waits.count(name) for name in entries if name in waits}
    return {"failed": failed, "written": written, "removed": removed, "waiting": left}


LOCK = Command("lock", LockParams, lock)


async def _listed_now(context: OperatorContext, params: LockParams, name: str) -> ServerEntry | str:
    with trio.move_on_after(params.seconds):
        try:
            async with own_instance(known_server(context, name)[0], params) as held:
                actor = context.actors[held.upstream.name]
                try:
                    problem = await actor.refresh()
                except UpstreamUnavailable:  # in a long queue of starts, calls give up before their turn
                    await actor.child.status.wait_until(lambda now: now.state is not ServerState.QUEUED)
                    problem = await actor.refresh()
                await context.registry.settle()
                _, entry = known_server(context, held.upstream.name)
            return problem or next(filter(None, (entry.list_of(kind).problem for kind in MEMBERS)), "") or entry
        except McpdError as error:
            # The error's own words are for models.
            return str(context.state_of(name).get("reason") or error)
    return f"no answer within {params.seconds:g} s"
