"""Runs every check of `mcpd doctor`, and puts what they find into words without secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.checks import configuration, host, listening, servers, state
from daemon.checks.findings import found
from daemon.config.redaction import Redactors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from daemon.checks.findings import Finding
    from daemon.checks.scene import Scene


def examine(scene: Scene) -> dict[str, list[Finding]]:
    """The findings of each check, by its title."""
    checks: dict[str, Callable[[Scene], Iterator[Finding]]] = {
        "configuration": configuration.check,
        "secrets": configuration.secrets,
        "sockets": listening.sockets,
        "http": listening.http_port,
        "state": state.check,
        "systemd": host.units,
        "limits": host.limits,
        "servers": servers.check,
        "clients": configuration.clients,
        "leftovers": host.leavings,
    }
    return {title: list(_guarded(check, scene)) for title, check in checks.items()}


def _guarded(check: Callable[[Scene], Iterator[Finding]], scene: Scene) -> Iterator[Finding]:
    """A check's findings; being denied access ends this check, not the others."""
    try:
        yield from check(scene)
    except OSError as error:
        place = error.filename or "the system"
        yield found("not-looked-at", place=place, problem=error.strerror or error)


def told(report: Mapping[str, Sequence[Finding]], scene: Scene) -> Iterator[Mapping[str, str]]:
    """The findings in words, with secrets redacted: a server's output, a path or an argument may hold one."""
    redactors = Redactors()
    if scene.config:
        redactors.learn(scene.config)
    for title, findings in report.items():
        for each in findings:
            # Redacted per server: another one's password may be an ordinary word in what is said of this one.
            server = str(each.data.get("server", ""))
            of_a_server = scene.config is not None and server in scene.config.mcp_servers
            redact = redactors.of(server) if of_a_server else redactors
            words = {"what": redact(each.what), "why": redact(each.why), "do": redact(each.do)}
            yield {"check": title, "level": each.level, "cause": each.cause, **words}
