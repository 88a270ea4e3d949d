"""`mcpd sandbox`: what a server's sandbox allows and has refused, and lessons in what the server needs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import attrs
import msgspec
import trio

from daemon.config.command_lines import runs_container, started
from daemon.config.config_model import TransportType
from daemon.config.sandbox_keys import SandboxMode, SandboxRules, sandbox_in_force
from daemon.operators.base import Command, OperatorContext, Refused
from daemon.operators.server_changes import RestartParams, named, restart
from daemon.sandbox.launch import Lesson

if TYPE_CHECKING:
    from daemon.config.config_model import Server
    from daemon.sandbox.egress import SeenHost

LEARNING = "notifications/learning"
"""Tells the operator that the server runs watched."""


class SandboxParams(msgspec.Struct):
    """The server whose sandbox to show."""

    server: str


async def sandbox(context: OperatorContext, params: SandboxParams) -> dict[str, object]:
    """Report the rules in force, and the hosts that were reached and refused; raises `McpdError`."""
    await trio.lowlevel.checkpoint()
    server = _local(context, params.server)
    rules = server.confined
    proxies = [each.egress for each in context.actors.values() if each.of == server.name and each.egress]
    reached, refused = Counter[str](), Counter[str]()
    last: dict[str, SeenHost] = {}
    for proxy in proxies:
        reached.update({host: each.count for host, each in proxy.allowed.hosts.items()})
        refused.update({host: each.count for host, each in proxy.refused.hosts.items()})
        last |= proxy.refused.hosts
    return {
        "server": server.name,
        "mode": str(SandboxMode.OFF if rules is None else rules.mode),
        "learning": server.name in context.lessons,
        "rules": None if rules is None else rules.as_written(),
        "reached": dict(reached),
        "refused": [
            {"host": host, "count": count, "reason": str(last[host].reason), "allow": last[host].allow}
            for host, count in refused.items()
        ],
    }


SANDBOX = Command("sandbox", SandboxParams, sandbox)


class LearnParams(SandboxParams):
    """The server to learn, the mode to learn for, and the longest time."""

    mode: SandboxMode
    seconds: float


async def learn(context: OperatorContext, params: LearnParams) -> dict[str, object]:
    """Run a server without its sandbox, but watched, and return the entry that it needs; raises `McpdError`.

    The lesson ends after `seconds`, by `learned`, or when the operator hangs up; then the sandbox is back.
    """
    server = _local(context, params.server)
    if server.name in context.lessons:
        raise Refused(f"server {server.name} is being learned already: `mcpd sandbox {server.name}` shows it")
    programs = [words[0] for words in started((server.command or "", *server.args))]
    registries = sandbox_in_force(SandboxRules(), programs=programs)
    context.lessons[server.name] = lesson = Lesson(server, SandboxRules(mode=params.mode))
    try:
        await restart(context, RestartParams(server.name))
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


async def learned(context: OperatorContext, params: SandboxParams) -> dict[str, object]:
    """End a lesson, whose operator then gets the entry."""
    await trio.lowlevel.checkpoint()
    lesson = context.lessons.get(params.server)
    if lesson is not None:
        lesson.enough.set()
    return {"server": params.server, "ended": lesson is not None}


LEARNED = Command("learned", SandboxParams, learned)


def _local(context: OperatorContext, name: str) -> Server:
    """A server that mcpd starts, and can confine; raises `McpdError`."""
    server = context.config.mcp_servers.get(name)
    if server is None:
        raise context.unknown(name)
    if server.type is not TransportType.STDIO or runs_container(server):
        text = (
            "mcpd does not start it" if server.type is not TransportType.STDIO else "a container is one itself"
        )
        raise Refused(f"server {name} has no sandbox of mcpd's: {text}")
    return server
