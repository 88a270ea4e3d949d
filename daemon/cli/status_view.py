"""Renders the status for people: a table of servers and everything unusual, or one server in detail."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.text import Text

from daemon import version
from daemon.cli.status_servers import STYLES, below, legend, remark_paragraphs, remarks, table
from daemon.cli.terminal import Screen, ago, columns_of, draw, listing, paragraph, safe
from daemon.cli.views import in_flight
from daemon.kit.wording import DAY, HOUR, bytes_in_words, counted, some, span
from daemon.operators.report_words import CONNECTIONS, ReportColumn, milliseconds, remark_lines, switches
from daemon.safety.escape import speaks_unicode, visible
from daemon.states import WELL

BARS = " ▁▂▃▄▅▆▇█"
"""The characters of a bar chart: a blank for a minute without a value, then eighths."""

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from daemon.operators import reports


def render(status: reports.StatusReport, *, now: float, screen: Screen) -> str:
    """Render the status, with ages at the time `now` (epoch seconds)."""
    servers = status["servers"]
    parts: list[RenderableType] = list(_persistence(status["daemon"], now))
    if servers:
        parts += [table(servers, now, screen), *legend(servers, screen), *below(servers, screen)]
    else:
        parts.append(Text("No servers are configured."))
    parts += [Text(line, style="cyan") for line in lately_in_words(status["lately"], screen.width)]
    parts += remarks(servers, status["daemon"]["startsAtATime"])
    for heading, names in (
        ("Named in the configuration but offered by no server:", status["unresolved"]),
        ("Switched off by operators (`mcpd enable` switches on):", status["switchedOff"]),
    ):
        if names:
            parts += [Text(""), Text(heading, style="yellow"), *(paragraph(name, indent=2) for name in names)]
    if sessions := status["sessions"]:
        parts += [Text(""), _sessions(sessions, now, screen), *_why(sessions)]
    if status["repairs"]:
        parts += [Text(""), *_repairs(status["repairs"])]
    parts += [part for text in _sums(status["metrics"], now) for part in (Text(""), Text(text))]
    if turned_away := ", ".join(_refused(status["connections"])):
        parts += [
            Text(""),
            safe(f"Connections refused since the start (the log says why): {turned_away}.", "yellow"),
        ]
    if summarized := "; ".join(_summarized(status.get("summarizer") or {})):
        parts += [Text(""), safe(f"Summaries by a model: {summarized}.")]
    return draw([*parts, Text(""), *_daemon(status["daemon"])], screen)


def _persistence(daemon: reports.DaemonReport, now: float) -> Iterator[RenderableType]:
    if why := daemon["unrecorded"]:
        yield safe(
            f"The processes that mcpd starts are not recorded ({why}): nothing would end them after kill -9 of"
            " the daemon.",
            "yellow",
        )
        yield Text("")
    if why := daemon.get("audit"):
        yield safe(f"audit: {why}", "bold red")
        yield Text("")
    kept = daemon["persistence"]
    if kept["state"] == "ok" and not kept["reason"]:
        return
    degraded = kept["state"] != "ok"
    text = f"persistence: {kept['state']}: {kept['reason'] or 'no reason is known'}"
    yield safe(text, "bold red" if degraded else "yellow")
    if degraded:
        since = span(now - kept["since"])
        waiting = f"{kept['waiting']} {'thing is' if kept['waiting'] == 1 else 'things are'} not written yet"
        yield paragraph(f"for {since}; {waiting}", indent=2)
    yield Text("")


def _refused(connections: Mapping[str, Any]) -> Iterator[str]:
    for name, door in connections.items():
        for reason, count in door["refused"].items():
            yield f"{count} of {name} ({reason.replace('_', ' ')})"


_NAMED = 10
"""Sessions named, at most, before the surface that they share."""


def _repairs(repairs: Mapping[str, Mapping[str, int]]) -> Iterator[RenderableType]:
    for client, kinds in repairs.items():
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        yield paragraph(f"arguments of {client or 'other clients'} that had to be repaired: {counts}", indent=0)


def _sums(metrics: Mapping[str, Any], now: float) -> Iterator[str]:
    if counted := "; ".join(_counted(metrics)):
        yield f"Since the start: {counted}."
    totals: Mapping[str, Any] = metrics["inAll"]
    if totals["since"] and (counted := "; ".join(_counted(totals))):
        day = time.strftime("%Y-%m-%d", time.localtime(totals["since"]))
        yield f"Since {day}, {span(now - totals['since'], parts=1)} ago: {counted}."


def _counted(metrics: Mapping[str, Any]) -> Iterator[str]:
    """Costs and savings of loading on demand; counters that were never raised are left out."""
    if loads := metrics.get("loads"):
        yield f"{counted(loads, 'tool')} loaded"
    hits, misses = metrics.get("loadHits", 0), metrics.get("loadMisses", 0)
    if hits + misses:
        yield f"{hits:,} of {hits + misses:,} calls found their tool loaded"
    if lost := metrics.get("invalidations"):
        whys = [
            f"{count:,} {status.removeprefix('invalid_').replace('_', ' ')}" for status, count in lost.items()
        ]
        yield f"{counted(sum(lost.values()), 'tool')} became invalid ({', '.join(whys)})"
    if trips := metrics.get("extraRoundTrips"):
        yield f"{trips:,} extra round trips"
    if spared := metrics["estimatedTokensNotSent"]:
        if spared > 0:
            yield f"about {spared:,} tokens not sent (an estimate)"
        else:
            yield (
                f"loading on demand has cost about {-spared:,} tokens more than it saved (an estimate):"
                " with few tools, surface `full` or `mcpd lazy off` is cheaper"
            )


def _summarized(summarizer: Mapping[str, Any]) -> Iterator[str]:
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


_SHOWN = (
    *("session", "client", "protocol", "profile", "surface", "token", "key"),
    *("since", "calls", "inFlight", "loaded", "repaired", "saved"),
)
_IF_ANY = {"token", "key", "loaded", "repaired", "saved"}  # dropped where every cell is empty


def _sessions(sessions: list[reports.ConnectionReport], now: float, screen: Screen) -> Table:
    empty = {name for name in _IF_ANY if all(CONNECTIONS[name].words(each) in {"-", "0"} for each in sessions)}
    columns = columns_of(
        CONNECTIONS,
        " ".join(name for name in _SHOWN if name not in empty),
        session=lambda each: f"#{each['number']}",
        surface=lambda each: ": ".join([each["surface"], *filter(None, [", ".join(each["servers"])])]),
        since=lambda each: ago(now, each["since"]),
    )
    return listing(columns, sessions, screen)


def _why(sessions: list[reports.ConnectionReport]) -> Iterator[RenderableType]:
    """Each reason for a chosen surface, once, and the clients whose savings are not counted."""
    named: dict[tuple[str, str], list[str]] = {}
    for session in sessions:
        named.setdefault((session["surface"], session["surfaceWhy"]), []).append(f"#{session['number']}")
    for (surface, why), those in named.items():
        yield paragraph(f"{some(those, _NAMED)} {surface}: {why}", indent=0)
    if clients := sorted({session["client"] for session in sessions if session["defersTools"]}):
        yield paragraph(
            f"saved (tokens, an estimate) does not apply to clients that defer tools themselves:"
            f" {', '.join(clients)}",
            indent=0,
        )


def _daemon(daemon: reports.DaemonReport) -> Iterator[RenderableType]:
    up = span(daemon["uptimeSeconds"])
    yield Text(f"mcpd {visible(daemon['version'])}, pid {daemon['pid']}, up {up}, {visible(daemon['config'])}")
    if daemon["version"] != version() or daemon.get("replaced"):
        yield safe(
            f"This `mcpd` is {version()}: `mcpd start --restart` restarts the daemon with it; calls wait."
        )
    lazy = switches(lazy=daemon["lazy"], surfaces=daemon["surfaces"])
    yield safe(f"{lazy[0].upper()}{lazy[1:]}.")
    asleep = f" ({daemon['dormant']} dormant: started by the next call)" if daemon["dormant"] else ""
    off = f", {daemon['off']} more switched off" if daemon["off"] else ""
    available = f"{daemon['available']} of {counted(daemon['servers'] - daemon['off'], 'server')} available"
    yield Text(f"{available}{asleep}{off}. {_shown(daemon)}")


def _shown(daemon: reports.DaemonReport) -> str:
    """The tokens of the default profile, compared with the tokens of all tools."""
    shown, saved = bytes_in_words(daemon["surfaceBytes"]), daemon["estimatedTokensSaved"]
    offered = daemon["offeredBytes"]
    tools = f"{counted(daemon['offeredTools'], 'tool')} of {bytes_in_words(offered)}"
    if daemon["surfaceBytes"] == offered:
        return f"Models see all {tools}: nothing is saved."
    if saved <= 0:
        return f"Models see {shown} instead of {tools}: about {-saved:,} tokens more (an estimate)."
    return (
        f"Models see meta-tools of {shown} instead of {tools}: about {saved:,} tokens saved in every"
        " conversation (an estimate), except with clients that defer tools themselves."
    )


def lately_in_words(report: reports.LatelyReport, width: int, lines: int = 2) -> list[str]:
    """Past outages and changes, in at most `lines` lines of `width` characters; empty without any."""
    servers = report["servers"]
    if not servers:
        return []
    worst_first = sorted(servers.items(), key=lambda each: -each[1]["awaySeconds"])
    hours = round(report["seconds"] / HOUR)
    parts = [_of_one(name, server) for name, server in worst_first]
    for shown in range(len(parts), -1, -1):
        left = [f"{counted(len(parts) - shown, 'server' if shown == 0 else 'other')}"] * (shown < len(parts))
        text = f"In the last {hours}h: {'; '.join([*parts[:shown], *left])}{_where(worst_first, shown, hours)}"
        wrapped = textwrap.wrap(text, width, break_on_hyphens=False)
        if len(wrapped) <= lines:
            return wrapped
    return []


NAMED = 3  # definitions that wait for approval, in a line


def _of_one(name: str, server: reports.OverReport) -> str:
    parts = []
    if times := server["outages"]:
        often = f"{times} times, " if times > 1 else ""
        parts.append(f"was away {often}{span(server['awaySeconds'])}")
    changes = (("changed", server["changed"]), ("added", server["came"]), ("removed", server["went"]))
    for word, names in changes:
        if names:
            noun = counted(len(names), "tool") if "tool" not in "".join(parts) else str(len(names))
            parts.append(f"{word} {noun}")
    if names := server.get("held"):
        parts.append(f"holds {some([*map(visible, names)], NAMED)} until approved")
    return f"{visible(name)} {', '.join(parts)}"


def _where(servers: list[tuple[str, reports.OverReport]], shown: int, hours: int) -> str:
    if len(servers) == shown == 1:
        return f" (mcpd events {visible(servers[0][0])})"
    return f" (mcpd events --since {hours}h)"


def render_one(answer: reports.OneStatusReport, *, now: float, screen: Screen) -> str:
    """Render the status of one server."""
    return draw(parts_of_one(answer, now, screen), screen)


def parts_of_one(answer: reports.OneStatusReport, now: float, screen: Screen) -> list[RenderableType]:
    """The status of one server, in parts to draw one below another."""
    server = answer["server"]
    parts: list[RenderableType] = [*_heading(answer["name"], server, now)]
    parts += _last_hour(answer.get("lastHour", {}))
    parts += remark_paragraphs(remark_lines(server))
    if instances := server.get("instances"):
        parts += [Text(""), table({each["name"]: each for each in instances}, now, screen)]
        for each in instances:
            if each["state"] not in WELL:
                parts += [Text(""), safe(f"{each['name']}: {each['state']}", STYLES.get(each["state"], ""))]
                parts += remark_paragraphs(remark_lines(each))
    return [*parts, *_below(answer, now, screen)]


def _heading(name: str, server: reports.ServerReport, now: float) -> Iterator[RenderableType]:
    title = server.get("title", "")
    title = f" ({title})" if title not in {"", name} else ""
    state = server["state"]
    yield safe(f"{name}{title}: {state} for {span(now - server['since'])}", STYLES.get(state, "bold"))
    for facts in (_program(server), _traffic(server), _pings(server, now)):
        if facts:
            yield paragraph(", ".join(facts), indent=2)


def _last_hour(minutes: Mapping[str, Any]) -> Iterator[RenderableType]:
    """For each quantity that was not zero in the last hour, a line of bars with its highest minute."""
    words: dict[str, Callable[[Any], str]] = {
        "calls": str,
        "errors": str,
        "latency": "{:.0f} ms".format,
        "memory": bytes_in_words,
    }
    for name, words_for in words.items() if speaks_unicode() else ():
        if most := max((each for each in minutes.get(name, ()) if each), default=0):
            bars = "".join(BARS[0 if each is None else 1 + round(7 * each / most)] for each in minutes[name])
            yield safe(f"  {name:7} {bars} {words_for(most)}", "dim")


def _program(server: reports.ServerReport) -> list[str]:
    restarts = server["restarts"]
    return [
        *filter(None, (server.get("type"), server["serverInfo"])),
        *([f"MCP {server['protocol']}"] if server["protocol"] else []),
        *_processes(server),
        *([bytes_in_words(server["rssBytes"])] if server["rssBytes"] is not None else []),
        counted(server["tools"], "tool"),
        *([f"sandbox {sandbox['mode']}"] if (sandbox := server.get("sandbox")) else []),
        *([f"started again {counted(restarts, 'time')}"] if restarts else []),
    ]


def _processes(server: reports.ServerReport) -> list[str]:
    """The server's pid, and the pid of a second process that serves clients of the other era."""
    if server["pid"] is None:
        return []
    pids = server["pids"]
    return [f"{'pids' if len(pids) > 1 else 'pid'} {' and '.join(map(str, pids))}"]


def _traffic(server: reports.ServerReport) -> list[str]:
    recent = server["recent"]
    lately = f"{recent['calls']:,} in the last {recent['minutes']} minutes"
    if recent["errors"]:
        lately += f", {counted(recent['errors'], 'error')}"
    if recent["p50Ms"] is not None:
        lately += f", p50 {milliseconds(recent['p50Ms'])} ms, p95 {milliseconds(recent['p95Ms'])} ms"
    in_all = f"{server['calls']:,} since it was configured, {server['errors']:,} of them errors"
    return [f"{counted(server['inFlight'], 'call')} in flight", lately, in_all]


def _pings(server: reports.ServerReport, now: float) -> list[str]:
    pings = server["pings"]
    if pings is None:
        return []
    facts = [f"last heard {span(now - pings['lastHeardAt'], parts=1)} ago"]
    if pings["lastMs"] is not None:
        facts.append(f"its last answer to a ping took {milliseconds(pings['lastMs'])} ms")
    if pings["unanswered"]:
        facts.append(f"{counted(pings['unanswered'], 'ping')} without an answer since")
    return facts


def _below(answer: reports.OneStatusReport, now: float, screen: Screen) -> Iterator[RenderableType]:
    name = answer["name"]
    if calls := answer["calls"]:
        yield from _headed("Calls in flight", in_flight(calls, screen))
        if more := answer["moreCalls"]:
            yield safe(f"and {more} more: `mcpd calls {name}`")
    if errors := answer["lastErrors"]:
        columns = [
            ReportColumn("ago", lambda each: ago(now, each["at"]), number=True),
            ReportColumn("tool", lambda each: each["tool"] or "-"),
            ReportColumn("error", lambda each: f"{each['code']}: {each['text']}"),
        ]
        yield from _headed("Last errors of its calls", listing(columns, errors, screen))
    if events := answer["events"]:
        columns = [
            ReportColumn("when", lambda each: _when(each["at"], now), number=True),
            ReportColumn(
                "what",
                lambda each: (
                    f"{each['instance']}: ".removeprefix(f"{name}: ").removeprefix(": ") + each["text"]
                ),
            ),
        ]
        yield from _headed(f"Last events (`mcpd events {name}` has more)", listing(columns, events, screen))


def _headed(heading: str, drawn: RenderableType) -> Iterator[RenderableType]:
    yield from (Text(""), safe(heading, "bold"), drawn)


def _when(at: float, now: float) -> str:
    far = "%Y-%m-%d " if now - at >= DAY else ""
    return time.strftime(f"{far}%H:%M:%S", time.localtime(at))
