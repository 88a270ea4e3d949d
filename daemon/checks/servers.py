"""Checks each server: can its command be started or its url be reached, what does it fetch, how is it now.

Of urls, only loopback and unix sockets are connected to, never the network: the doctor must neither show up in
the log of a remote host nor wait for it.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from daemon.checks import programs
from daemon.checks.findings import Level, found
from daemon.config.command_lines import advice
from daemon.config.model import PORTS, WRITTEN, Share, TransportType
from daemon.states import COMING, WELL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daemon.checks.findings import Finding, Running, Scene
    from daemon.config.model import Server


CONNECT_SECONDS = 1.0
"""Timeout of a connection within this machine, which takes microseconds."""

LOCAL = ("127.0.0.1", "::1")
"""The addresses of `localhost` (RFC 6761), whatever a name server says."""


def endpoint(server: Server, *, connect: bool) -> Iterator[Finding]:
    """Findings about a server's url.

    Args:
        server: its configuration.
        connect: whether to try a server on this machine; False if the daemon has told its state.
    """
    if server.type is TransportType.UNIX:
        path = unix_path(server.url or "")
        if connect and (problem := _refusal(path)):
            yield found("endpoint-socket-silent", server=server.name, address=path, problem=problem)
        return
    parts = urlsplit(server.url or "")
    host, port = parts.hostname or "", parts.port or PORTS[parts.scheme]
    addresses = loopback(host)
    if addresses:
        problems = [_refusal(address, port) for address in addresses] if connect else [""]
        if all(problems):
            yield found("endpoint-silent", server=server.name, address=f"{host}:{port}", problem=problems[0])
    elif (scheme := parts.scheme) in {"http", "ws"}:
        carried = "its headers and all calls" if server.headers else "all calls"
        yield found("endpoint-unencrypted", server=server.name, host=host, scheme=scheme, carried=carried)
    else:
        yield found("endpoint-remote", server=server.name, host=host)


def loopback(host: str) -> tuple[str, ...]:
    """The addresses of a host that is this machine; none if it is another."""
    if host == "localhost" or host.endswith(".localhost"):
        return LOCAL
    try:
        return (host,) if ipaddress.ip_address(host).is_loopback else ()
    except ValueError:
        return ()


def unix_path(url: str) -> str:
    """The path in a url of type unix, which may also be a bare path."""
    return url if url.startswith("/") else unquote(urlsplit(url).path)


def _refusal(address: str, port: int | None = None) -> str:
    """Why a connection within this machine fails, to a port or to a socket's path; empty if it does not."""
    family = socket.AF_UNIX if port is None else socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.settimeout(CONNECT_SECONDS)
            probe.connect(address if port is None else (address, port))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def check(scene: Scene) -> Iterator[Finding]:
    """Findings about every server, in the configuration's order."""
    if scene.config is None:
        yield found("servers-unread")
        return
    for name, server in scene.config.mcp_servers.items():
        if not server.enabled:
            yield found("server-off", server=name)
            continue
        what = [*_server(server, scene), *sharing(server)]
        yield from what
        if all(each.level is Level.NOTE for each in what):
            yield found("server-sound", server=name, reached=_reached(server, scene))


def _server(server: Server, scene: Scene) -> Iterator[Finding]:
    now = None if scene.running is None else _now(server.name, scene.running)
    if server.type is not TransportType.STDIO:
        yield from [] if now is None else [now]
        yield from endpoint(server, connect=now is None)
        return
    running = scene.running is not None
    what = list(programs.check(server, scene.inherited, scene.environ, running=running))
    # What is wrong with the command causes the server's state, and is more exact.
    if now is not None and all(each.level is not Level.FAULT for each in what):
        yield now
    yield from what
    yield from programs.packages(server)


def _now(name: str, running: Running) -> Finding | None:
    """A finding if the running daemon reports the server as not well; else None."""
    seen = running.status["servers"].get(name)
    if seen is None or seen["state"] in WELL | COMING:
        return None
    return found(
        "server-down",
        server=name,
        state=seen["state"],
        reason=seen["reason"] or "no reason is known",
        happened=seen.get("happened", ""),
        helps=seen.get("helps") or f"`mcpd status` and `mcpd logs {name}` tell more.",
    )


def _reached(server: Server, scene: Scene) -> str:
    """How a sound server is started or reached."""
    what = f"type {server.type}"
    if server.type is TransportType.STDIO:
        what = programs.named(server, scene.inherited)
    if server.shared_by is Share.ALL:
        return what
    return f"{what}, one for each {server.shared_by}, at most {most_instances(server)} at a time"


def most_instances(server: Server) -> int:
    """How many instances of a server may run at the same time."""
    return 1 if server.shared_by is Share.ALL else server.limits.instances


def sharing(server: Server) -> Iterator[Finding]:
    """Findings about one server, each with the `key` of its entry that it is about."""
    for each in advice(server):
        name, key, why = server.name, each.key, each.why
        if isinstance(each.value, Share):
            yield found("server-shared", server=name, key=key, why=why, share=each.value)
        elif isinstance(each.value, int):
            yield found("server-limit-too-high", server=name, key=key, why=why, most=each.value)
        else:
            words = ", ".join(f'"{word}"' for word in each.value)
            if WRITTEN not in each.value:
                yield found("server-instances-meet", server=name, key=key, why=why, words=words)
            elif each.in_container:
                yield found("server-bound-to-a-mount", server=name, key=key, why=why, words=words)
            else:
                yield found("server-bound-to-a-directory", server=name, key=key, why=why, words=words)
