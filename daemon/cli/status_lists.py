"""What the status shows people of servers' prompts, resources and templates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.cli.terminal import ROOMY, paragraph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from daemon.cli.terminal import Screen

Json = dict[str, Any]

KINDS = ("prompts", "resources", "templates")
"""What servers list beside tools, as `status` answers it."""

MAX_NAMED = 10
"""Most prompts, or URIs, of one server that are named as faulty: `mcpd status --json` has all."""


def columns(servers: Json, screen: Screen) -> list[str]:
    """The kinds that have a column in the table of servers: those that any server has, if there is room."""
    if screen.width < ROOMY:
        return []
    return [kind for kind in KINDS if any(server.get(kind) for server in servers.values())]


def below(servers: Json, screen: Screen) -> Iterator[RenderableType]:
    """The same numbers in words, where the table has no room for them."""
    if screen.width >= ROOMY:
        return
    parts = [f"{name} {had}" for name, server in servers.items() if (had := _numbers(server))]
    if parts:
        yield paragraph(f"Beside tools: {'; '.join(parts)}.", indent=0)


def faults(server: Json) -> Iterator[tuple[str, str]]:
    """What is wrong with a server's lists beside its tools, each line with its style."""
    for kind, known in (server.get("lists") or {}).items():
        if known.get("listingError"):
            yield f"its {kind} could not be listed: {known['listingError']}", "yellow"
        yield from _named(kind, "is not offered: {}", "are not offered", known.get("quarantined") or {})
        yield from _named(
            kind, "has {}: spelt out for models", "have hidden characters", known.get("hidden") or {}
        )


def _numbers(server: Json) -> str:
    return ", ".join(
        f"{count} {kind if count > 1 else kind[:-1]}" for kind in KINDS if (count := server.get(kind))
    )


def _named(kind: str, one: str, more: str, found: Json) -> Iterator[tuple[str, str]]:
    for name, why in list(found.items())[:MAX_NAMED]:
        yield f"{kind[:-1]} {name} {one.format(why)}", "yellow"
    if len(found) > MAX_NAMED:
        yield f"{len(found) - MAX_NAMED} more of its {kind} {more}: `mcpd status --json` has them", "yellow"
