"""The status as text for people: a table of servers, and below it everything that is not as it should be."""

from __future__ import annotations

import textwrap
import time
from typing import TYPE_CHECKING, Any

from rich.text import Text

from daemon.cli.status_servers import below, legend, remarks, table
from daemon.cli.terminal import draw, grid, paragraph, safe
from daemon.kit.wording import HOUR, bytes_in_words, counted, span
from daemon.operators.report_words import switches
from daemon.safety.escape import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType
    from rich.table import Table

    from daemon.cli.terminal import Screen


Json = dict[str, Any]


def render(status: Json, *, now: float, screen: Screen) -> str:
    """A `status` answer as text.

    Args:
        status: as the control socket answers it (design.md §6).
        now: seconds since the epoch, for ages.
        screen: where it is shown.
    """
    servers: Json = status["servers"]
    parts: list[RenderableType] = list(_persistence(status["daemon"], now))
    if servers:
        parts += [table(servers, now, screen), *legend(servers, screen), *below(servers, screen)]
    else:
        parts.append(Text("No servers are configured."))
    parts += [Text(line, style="cyan") for line in lately_in_words(status.get("lately"), screen.width)]
    parts += remarks(servers, status["daemon"].get("startsAtATime"))
    if status.get("unresolved"):
        parts += [Text(""), Text("Named in the configuration but offered by no server:", style="yellow")]
        parts += [paragraph(str(name), indent=2) for name in status["unresolved"]]
    if status.get("switchedOff"):
        parts += [Text(""), Text("Switched off by operators (`mcpd enable` switches on):", style="yellow")]
        parts += [paragraph(str(name), indent=2) for name in status["switchedOff"]]
    if status.get("sessions"):
        parts += [Text(""), _sessions(status["sessions"], now, screen), *_why(status["sessions"])]
        parts += _deferring(status["sessions"])
    if status.get("repairs"):
        parts += [Text(""), *_repairs(status["repairs"])]
    parts += [part for text in _sums(status.get("metrics") or {}, now) for part in (Text(""), Text(text))]
    if turned_away := ", ".join(_refused(status.get("connections") or {})):
        parts += [
            Text(""),
            safe(f"Connections refused since the start (the log says why): {turned_away}.", "yellow"),
        ]
    if said := "; ".join(_summarized(status.get("summarizer") or {})):
        parts += [Text(""), safe(f"Summaries by a model: {said}.")]
    return draw([*parts, Text(""), *_daemon(status["daemon"])], screen)


def _persistence(daemon: Json, now: float) -> Iterator[RenderableType]:
    """What is wrong with persistence; shown first, because what is not stored is lost with the daemon."""
    if why := daemon.get("unrecorded"):
        yield safe(
            f"What is started is not written down ({why}): nobody ends what kill -9 would leave.", "yellow"
        )
        yield Text("")
    kept = daemon.get("persistence") or {}
    if not kept or (kept["state"] == "ok" and not kept["reason"]):
        return
    degraded = kept["state"] != "ok"
    text = f"persistence: {kept['state']}: {kept['reason'] or 'no reason is known'}"
    yield safe(text, "bold red" if degraded else "yellow")
    if degraded:
        since = span(now - kept["since"])
        waiting = f"{kept['waiting']} {'thing is' if kept['waiting'] == 1 else 'things are'} not written yet"
        yield paragraph(f"for {since}; {waiting}", indent=2)
    yield Text("")


def _refused(connections: Json) -> Iterator[str]:
    for name, door in connections.items():
        for reason, count in door["refused"].items():
            yield f"{count} of {name} ({reason.replace('_', ' ')})"


_EXTRA = (
    ("loadedTools", "loaded"),
    ("repairedCalls", "repaired"),
    ("estimatedTokensNotSent", "saved"),
)
"""Optional numbers of a session, each with its heading; a column that is empty for all sessions is left out."""

_NAMED = 10
"""Sessions that are named before their common reason for a surface."""

DOES_NOT_APPLY = "n/a"
"""Shown in place of a number that does not apply."""


def _repairs(repairs: Json) -> Iterator[RenderableType]:
    """How often each client sent arguments that had to be repaired."""
    for client, kinds in repairs.items():
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        yield paragraph(f"arguments of {client or 'other clients'} that had to be repaired: {counts}", indent=0)


def _sums(metrics: Json, now: float) -> Iterator[str]:
    """What was counted since the daemon started, and over all restarts."""
    if counted := "; ".join(_counted(metrics)):
        yield f"Since the start: {counted}."
    totals: Json = metrics.get("inAll") or {}
    if totals.get("since") and (counted := "; ".join(_counted(totals))):
        day = time.strftime("%Y-%m-%d", time.localtime(totals["since"]))
        yield f"Since {day}, {span(now - totals['since'], parts=1)} ago: {counted}."


def _counted(metrics: Json) -> Iterator[str]:
    """What loading on demand has cost and saved; only numbers that are not zero."""
    if loads := metrics.get("loads"):
        yield f"{counted(loads, 'tool')} loaded"
    hits, misses = metrics.get("loadHits", 0), metrics.get("loadMisses", 0)
    if hits + misses:
        yield f"{hits:,} of {hits + misses:,} calls found theirs loaded"
    if lost := metrics.get("invalidations"):
        whys = [
            f"{count:,} {status.removeprefix('invalid_').replace('_', ' ')}" for status, count in lost.items()
        ]
        yield f"{counted(sum(lost.values()), 'tool')} became invalid ({', '.join(whys)})"
    if trips := metrics.get("extraRoundTrips"):
        yield f"{trips:,} extra round trips"
    if spared := metrics.get("estimatedTokensNotSent"):
        if spared > 0:
            yield f"about {spared:,} tokens not sent (an estimate)"
        else:
            yield (
                f"loading on demand has cost about {-spared:,} tokens more than it saved (an estimate):"
                " with few tools, surface `full` or `mcpd lazy off` is cheaper"
            )


def _summarized(summarizer: Json) -> Iterator[str]:
    """How the model that writes summaries of servers and tools is doing."""
    if model := summarizer.get("model"):
        yield f"{model} at {summarizer.get('endpoint', 'unknown')}"
    if "sentences" in summarizer:
        yield f"{summarizer['sentences']:,} sentences"
    if off := summarizer.get("off"):
        yield str(off)
    if waiting := summarizer.get("waiting"):
        yield f"{waiting:,} to come"
    if given_up := summarizer.get("givenUp"):
        yield f"{given_up:,} without one"
    if error := summarizer.get("lastError"):
        yield f"the last question failed: {error.rstrip('.')}"


def _sessions(sessions: list[Json], now: float, screen: Screen) -> Table:
    table = grid(screen)
    words = ["client", "protocol", "profile", "surface"]
    words += [word for word in ("token", "key") if any(session.get(word) for session in sessions)]
    for heading in ("session", *words):
        table.add_column(heading, overflow="fold")
    extra = [(key, name) for key, name in _EXTRA if any(session.get(key, 0) != 0 for session in sessions)]
    for heading in ("since", "calls", "in flight", *(name for _, name in extra)):
        table.add_column(heading, justify="right", no_wrap=True)
    for session in sessions:
        if servers := session.get("servers"):
            session = {**session, "surface": f"{session['surface']}: {', '.join(servers)}"}  # noqa: PLW2901
        table.add_row(
            f"#{session['number']}",
            *(safe(session.get(word) or "-") for word in words),
            span(now - session["since"], parts=1),
            str(session["calls"]),
            str(session["inFlight"]),
            *(_number(session.get(key, 0)) for key, _ in extra),
        )
    return table


def _why(sessions: list[Json]) -> Iterator[RenderableType]:
    """Why the sessions have their surfaces, each reason once."""
    told: dict[tuple[str, str], list[str]] = {}
    for session in sessions:
        if why := session.get("surfaceWhy"):  # absent from an older daemon
            told.setdefault((session["surface"], why), []).append(f"#{session['number']}")
    for (surface, why), numbers in told.items():
        more = f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else ""
        yield paragraph(f"{', '.join(numbers[:_NAMED])}{more} {surface}: {why}", indent=0)


def _deferring(sessions: list[Json]) -> Iterator[RenderableType]:
    """Why some sessions have saved nothing: their clients defer tools themselves."""
    if clients := sorted({session.get("client", "") for session in sessions if session.get("defersTools")}):
        yield paragraph(
            f"saved (tokens, an estimate) does not apply to clients that defer tools themselves:"
            f" {', '.join(clients)}",
            indent=0,
        )


def _number(value: int | None) -> str:
    return DOES_NOT_APPLY if value is None else f"{value:,}"


def _daemon(daemon: Json) -> Iterator[RenderableType]:
    up = span(daemon["uptimeSeconds"])
    yield Text(f"mcpd {visible(daemon['version'])}, pid {daemon['pid']}, up {up}, {visible(daemon['config'])}")
    if "surfaces" in daemon:  # absent from an older daemon
        told = switches(lazy=daemon["lazy"], surfaces=daemon["surfaces"])
        yield safe(f"{told[0].upper()}{told[1:]}.")
    dormant = daemon.get("dormant")
    asleep = f" ({dormant} dormant: started by the next call)" if dormant else ""
    off = f", {daemon['off']} more switched off" if daemon.get("off") else ""
    wanted = daemon["servers"] - daemon.get("off", 0)
    available = f"{daemon['available']} of {counted(wanted, 'server')} available"
    yield Text(f"{available}{asleep}{off}. {_shown(daemon)}")


def _shown(daemon: Json) -> str:
    """What the default profile shows, compared with all that it offers."""
    shown, saved = bytes_in_words(daemon["surfaceBytes"]), daemon["estimatedTokensSaved"]
    offered = daemon["offeredBytes"]
    tools = f"{counted(daemon['offeredTools'], 'tool')} of {bytes_in_words(offered)}"
    if daemon["surfaceBytes"] == offered:
        return f"Models see all {tools}: nothing is saved."
    if saved <= 0:
        return f"Models see {shown} instead of {tools}: about {-saved:,} tokens more (an estimate)."
    return (
        f"Models see meta-tools of {shown} instead of {tools}: about {saved:,} tokens saved in every"
        " conversation (an estimate), but for clients that defer tools themselves."
    )


def lately_in_words(told: Mapping[str, Any] | None, width: int, lines: int = 2) -> list[str]:
    """What is over, in a few lines; empty if there is nothing, or an older daemon does not say.

    Args:
        told: `lately` of a `status` answer.
        width: the most characters of a line.
        lines: the most lines. What has no room is counted.
    """
    servers: Mapping[str, Json] = (told or {}).get("servers") or {}
    if told is None or not servers:
        return []
    worst_first = sorted(servers.items(), key=lambda each: -each[1]["awaySeconds"])
    hours = round(told["seconds"] / HOUR)
    parts = [_of_one(name, server) for name, server in worst_first]
    for shown in range(len(parts), -1, -1):
        left = [f"{counted(len(parts) - shown, 'server' if shown == 0 else 'other')}"] * (shown < len(parts))
        text = f"In the last {hours}h: {'; '.join([*parts[:shown], *left])}{_where(worst_first, shown, hours)}"
        wrapped = textwrap.wrap(text, width, break_on_hyphens=False)
        if len(wrapped) <= lines:
            return wrapped
    return []


def _of_one(name: str, server: Json) -> str:
    told = []
    if times := server["outages"]:
        often = f"{times} times, " if times > 1 else ""
        told.append(f"was away {often}{span(server['awaySeconds'])}")
    changes = (("changed", server["changed"]), ("added", server["came"]), ("removed", server["went"]))
    for word, names in changes:
        if names:
            noun = counted(len(names), "tool") if "tool" not in "".join(told) else str(len(names))
            told.append(f"{word} {noun}")
    return f"{visible(name)} {', '.join(told)}"


def _where(servers: list[tuple[str, Json]], shown: int, hours: int) -> str:
    """The command that tells more."""
    if len(servers) == shown == 1:
        return f" (mcpd events {visible(servers[0][0])})"
    return f" (mcpd events --since {hours}h)"
