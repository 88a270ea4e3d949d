"""`mcpd sandbox`: a server's sandbox rules and refusals, and lessons that find out which rules it needs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import attrs
import trio

from daemon.causes import Cause
from daemon.config.command_lines import runs_container, started
from daemon.config.config_model import TransportType
from daemon.config.sandbox_keys import SandboxMode, SandboxRules, sandbox_in_force
from daemon.operators.base import Command, OneServer, OperatorContext, Refused
from daemon.operators.server_changes import named, restart
from daemon.sandbox.launch import Lesson
from daemon.states import COMING, WAITING

if TYPE_CHECKING:
    from daemon.config.config_model import Server

LEARNING = "notifications/learning"
"""Notifies the operator that the server now runs watched."""


async def sandbox(context: OperatorContext, params: OneServer) -> dict[str, object]:
    """Report the rules in force, and the hosts that the server reached and was refused; raises `McpdError`."""
    await trio.lowlevel.checkpoint()
    server = _local(context, params.server)
    rules = server.written.confined
    proxies = [each.egress for each in context.actors.values() if each.of == server.name and each.egress]
    reached = Counter[str]()
    for proxy in proxies:
        reached.update({host: each.count for host, each in proxy.allowed.hosts.items()})
    upstream = context.upstreams.get(server.name)
    refused = None if upstream is None else upstream.refused_hosts
    return {
        "server": server.name,
        "mode": str(SandboxMode.OFF if rules is None else rules.mode),
        "learning": server.name in context.lessons,
        "rules": None if rules is None else rules.as_written(),
        "reached": dict(reached),
        "refused": [
            {"host": each.host, "count": each.count, "reason": str(each.reason), "allow": each.allow}
            for each in (refused.hosts.values() if refused else ())
        ],
    }


SANDBOX = Command("sandbox", OneServer, sandbox, reads=True)


class LearnParams(OneServer):
    """The server to watch, the sandbox mode to find rules for, and the longest time."""

    mode: SandboxMode
    seconds: float


async def learn(context: OperatorContext, params: LearnParams) -> dict[str, object]:
    """Watch a server run without its sandbox; return the sandbox entry that it needs; raises `McpdError`.

    The lesson ends after `seconds`, by `learned`, or when the operator disconnects; then the sandbox is back.
    """
    server = _local(context, params.server)
    if server.name in context.lessons:
        raise Refused(f"a lesson for server {server.name} is under way: `mcpd sandbox {server.name}` shows it")
    programs = [words[0] for words in started((server.command or "", *server.args))]
    registries = sandbox_in_force(SandboxRules(), programs=programs)
    context.lessons[server.name] = lesson = Lesson(server, params.mode)
    try:
        with trio.move_on_after(params.seconds):
            await restart(context, OneServer(server.name), params.seconds)
            for status in (each.child.status for each in named(context, server.name)):
                # It may install its package first, longer than it has to answer.
                while status.last.cause is Cause.HANDSHAKE_TIMEOUT and status.value.state in COMING | WAITING:
                    await status.wait_changed(status.value)
        up = context.state_of(server.name)
        if up["state"] in COMING | WAITING:
            raise Refused(f"server {server.name} does not come up, so nothing was learned: {up['reason']}")
        if context.operator is not None:
            context.operator.tell(LEARNING, {"server": server.name})
        with trio.move_on_after(params.seconds):
            await lesson.enough.wait()
        found = await trio.to_thread.run_sync(lesson.learned, registries.hosts if registries else ())
    finally:
        del context.lessons[server.name]
        for each in named(context, server.name):
            if not each.child.off:
                each.child.restart()
    if found is None:
        raise Refused(f"server {server.name} has not started meanwhile: `mcpd status {server.name}` says why")
    lines = [attrs.asdict(line) for line in found.lines]
    return {"server": server.name, "sandbox": found.entry, "lines": lines, "notes": list(found.notes)}


LEARN = Command("learn", LearnParams, learn)


async def learned(context: OperatorContext, params: OneServer) -> dict[str, object]:
    """End a lesson; the operator who began it then gets the entry."""
    await trio.lowlevel.checkpoint()
    lesson = context.lessons.get(params.server)
    if lesson is not None:
        lesson.enough.set()
    return {"server": params.server, "ended": lesson is not None}


LEARNED = Command("learned", OneServer, learned)


def _local(context: OperatorContext, name: str) -> Server:
    """The configuration of a server that mcpd starts, and so can confine; raises `McpdError`."""
    server = context.config.mcp_servers.get(name)
    if server is None:
        raise context.unknown(name)
    is_remote = server.type is not TransportType.STDIO
    if is_remote or runs_container(server):
        text = "mcpd does not start it" if is_remote else "it runs in a container, which confines it already"
        raise Refused(f"mcpd cannot put server {name} into a sandbox: {text}")
    return server
