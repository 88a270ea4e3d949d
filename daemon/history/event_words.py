"""Events as English sentences, with servers' texts verbatim; the caller makes them safe to show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from daemon.history.event import Event, EventKind
from daemon.kit.later import pattern
from daemon.kit.wording import counted, some, span
from daemon.states import ServerState

NAMED = 10
"""Most names of a list in a sentence; the event has up to a hundred."""

QUOTED = 120
"""Most characters of a server's last line in a sentence; the event has ten lines."""

AT_ONCE = 0.05
"""Shortest pause, in seconds, that is worth a number."""

LISTS = {
    "tools": "tools",
    "prompts": "prompts",
    "resources": "resources",
    "resourceTemplates": "resource templates",
    "skills": "skills",
}
"""The lists of a server, by their names in details."""

_HOW = {"came": "added", "went": "removed", "changed": "changed"}
"""Changes of a list's members, by their names in details."""

_ARGUMENTS = {
    "argumentsCame": "added",
    "argumentsWent": "removed",
    "argumentsChanged": "changed",
    "argumentsRequired": "now required",
}
"""Changes of a tool's arguments, by their names in details."""

_LASTING = {"once": "once", "session": "for the session"}

_RESTARTED_BY = {
    "operator": "an operator asked for it",
    "configuration": "its configuration has changed",
    "login": "its login changed",
}


def sentence(event: Event) -> str:
    """The event with its subject: `git: ended: killed by SIGKILL after 2h 3m`."""
    told = phrase(event)
    whom = event.instance or event.server or (f"session {event.session}" if event.session else "")
    return f"{whom}: {told}" if whom else told


def phrase(event: Event) -> str:
    """The event without its subject, for a place that already names it."""
    return _WORDED[event.kind](event, event.details)


def _number(details: Mapping[str, object], name: str) -> float | None:
    value = details.get(name)
    return value if isinstance(value, (int, float)) else None


def _with_reason(words: str, event: Event) -> str:
    return f"{words}: {why}" if (why := _why(event)) else words


def of_tool(event: Event, name: str) -> str:
    """The change of one tool in an event: `changed (argument place added)`; empty without one."""
    tools, renamed, differ = (event.details.get(each) for each in ("tools", "renamed", "toolsDiffer"))
    if isinstance(renamed, dict) and name in renamed:
        return f"renamed to {renamed[name]}"
    found = tools if isinstance(tools, dict) else {}
    words = (word for how, word in _HOW.items() if name in _names(found.get(how)))
    if (word := next(words, None)) is None:
        return ""
    what = _differences(differ.get(name)) if isinstance(differ, dict) else ""
    return f"{word} ({what})" if what else word


def _names(found: object) -> Sequence[object]:
    return found if isinstance(found, (list, tuple)) else ()


def _ready(event: Event, details: Mapping[str, object]) -> str:
    if details.get("again"):
        return "ready again"
    seconds, pid = _number(details, "seconds"), details.get("pid")
    took = "" if seconds is None else f" after {span(seconds)}"
    return f"ready{took}" + (f" (pid {pid})" if pid else "") + _outage(event, details)


def _outage(event: Event, details: Mapping[str, object]) -> str:
    """The outage that ended: its length, its start, and whether mcpd was restarted in between."""
    away, since = _number(details, "awaySeconds"), _number(details, "awaySince")
    if away is None:
        return ""
    began = f", since {_clock(since, event.at)}" if since and 0 < since <= event.at else ""
    return (
        f"; was away {span(away)}{began}{', over a restart of mcpd' if details.get('awayOverRestart') else ''}"
    )


def _clock(at: float, near: float) -> str:
    """The local time of day, with the date if it differs from that of `near`."""
    then = datetime.fromtimestamp(at).astimezone()
    same_day = then.date() == datetime.fromtimestamp(near).astimezone().date()
    return f"{then:%H:%M}" if same_day else f"{then:%Y-%m-%d %H:%M}"


def _ended(event: Event, details: Mapping[str, object]) -> str:
    served, often = _number(details, "seconds"), _often(event, details)
    after = "" if served is None else f" after {span(served)}"
    if details.get("asked"):
        return f"ended for a restart{after or ' before it was ready'}"
    if event.cause is not None and not after:
        told = f"tried {often or 'once'}"
    else:
        told = f"ended{often and f' {often}, the last'}{after or ' before it was ready'}"
    pause, state = _number(details, "retrySeconds"), details.get("state")
    if pause is not None:
        told += f", next in {span(pause)}" if pause >= AT_ONCE else ", next at once"
    # Of a run that mcpd has stopped, or of a server that it no longer has, the reason says so.
    elif event.cause is None and state == ServerState.STOPPED:
        state = None
    state = f" ({state})" if state not in {ServerState.BACKOFF, None} else ""
    return f"{told}{state}: {_why(event) or 'no reason is known'}"


def _why(event: Event) -> str:
    """The diagnosis and the remedy as in `mcpd status`; without these, the reason."""
    details = event.details
    happened, helps = details.get("happened"), details.get("helps")
    why, is_by_words = str(happened or event.text), details.get("byWords") or (happened and not helps)
    last = "" if event.cause is None or is_by_words else _last_words(details)
    why = f"{why.removesuffix('.')}{last}{'.' if helps else ''}" if last or not helps else why
    return f"{why} What helps: {helps}" if helps else why


def _often(event: Event, details: Mapping[str, object]) -> str:
    """The number of tries or similar ends in a row, and when they began; empty for a single one."""
    times = _number(details, "times") or _number(details, "attempt") or 1
    first = _number(details, "firstAt") or _number(details, "awaySince")
    return "" if times <= 1 or first is None else f"{times:.0f} times since {_clock(first, event.at)}"


_USAGE = pattern(r"(?i)\W*(?:try|run|see) .*--help\b")
"""Matches a program's last line that only points to its help."""


def _last_words(details: Mapping[str, object]) -> str:
    """The server's last line on stderr, where a program that ends by itself says why."""
    lines = details.get("stderr")
    said = [] if not isinstance(lines, (list, tuple)) else [str(each).strip() for each in lines]
    if not (words := next((each for each in reversed(said) if each and not _USAGE.match(each)), "")):
        return ""
    return f" (its last line: {words[:QUOTED]}{'…' if len(words) > QUOTED else ''})"


def _restarted(event: Event, details: Mapping[str, object]) -> str:
    by = str(details.get("by", ""))
    return f"restarted: {event.text or _RESTARTED_BY.get(by, by)}"


def _lists_changed(_event: Event, details: Mapping[str, object]) -> str:
    differ = details.get("toolsDiffer")
    told = [
        words
        for name, noun in LISTS.items()
        if (words := _changes(noun, details.get(name), differ if name == "tools" else None))
    ]
    renamed = details.get("renamed")
    if isinstance(renamed, dict) and renamed:
        told.append(f"renamed: {some([f'{old} to {new}' for old, new in renamed.items()], NAMED)}")
    return "; ".join(told)


def _changes(noun: str, found: object, differ: object) -> str:
    """The changes of one list, with the differences of tools; empty without any."""
    if not isinstance(found, dict):
        return ""
    told = [
        f"{word} {some(_explained(names, differ), NAMED, int(found.get(f'{how}More', 0)))}"
        for how, word in _HOW.items()
        if (names := found.get(how))
    ]
    return f"{noun} {'; '.join(told)}" if told else ""


def _explained(names: Sequence[object], differ: object) -> list[str]:
    """Names, with the differences of changed tools: `current (argument place added)`."""
    if not isinstance(differ, dict):
        return [str(name) for name in names]
    return [f"{name} ({words})" if (words := _differences(differ.get(name))) else str(name) for name in names]


def _differences(found: object) -> str:
    if not isinstance(found, dict):
        return ""
    told = [
        f"{'argument' if len(names) == 1 else 'arguments'} {some(names, NAMED)} {how}"
        for what, how in _ARGUMENTS.items()
        if (names := found.get(what))
    ]
    members = [str(name) for name in found.get("members", ()) if not told or name != "inputSchema"]
    return ", ".join([*members, *told])


_HELD = {
    "new": "nobody approved it yet",
    "changed": "it changed",
    "lock": "mcpd.lock does not approve it",
    "unknown": "the approvals are not read yet",
}


def of_held(because: str, change: Mapping[str, Sequence[str]]) -> str:
    """Why a definition is held (`catalog.trust`), as `it changed: description, argument place added`."""
    what = _differences(change)
    why = _HELD.get(because, because)
    return f"{why}: {what}" if what else why


def _held(_event: Event, details: Mapping[str, object]) -> str:
    given = details.get("definitions")
    found = given if isinstance(given, Mapping) else {}
    told = [
        f"{name} ({of_held(str(each.get('because')), each)})"
        for name, each in found.items()
        if isinstance(each, Mapping)
    ]
    more = sum(int(_number(each, "more") or 0) for each in (details, found))
    return f"waits for approval (`mcpd approve`): {some(told, NAMED, more)}"


def _approved(_event: Event, details: Mapping[str, object]) -> str:
    more = int(_number(details, "namesMore") or 0)
    return f"{details.get('by')} approved {some(_names(details.get('names')), NAMED, more)}"


def _allowed(_event: Event, details: Mapping[str, object]) -> str:
    lasts = details.get("lasts")
    how = f"for {span(lasts)}" if isinstance(lasts, (int, float)) else _LASTING.get(str(lasts), "")
    return f"{details.get('by')} allowed {details.get('tool')} {how}".rstrip()


def _reloaded(event: Event, details: Mapping[str, object]) -> str:
    if event.text:
        return f"the configuration was refused: {event.text}"
    told = [
        f"{what}: {some(names, NAMED)}" for what, names in details.items() if isinstance(names, list) and names
    ]
    return f"the configuration was read: {'; '.join(told) or 'nothing has changed'}"


def _refused(event: Event, details: Mapping[str, object]) -> str:
    count = int(_number(details, "count") or 1)
    uid = details.get("uid")
    who = "" if uid is None else f" of uid {uid}" if count == 1 else f", the last of uid {uid},"
    words = _with_reason(f"{counted(count, 'connection')}{who} refused at {details.get('door')}", event)
    return words if event.text else f"{words}: {str(details.get('reason', '')).replace('_', ' ')}"


def _overloaded(event: Event, details: Mapping[str, object]) -> str:
    count = int(_number(details, "count") or 1)
    bound = f" ({details['bound']})" if details.get("bound") else ""
    return _with_reason(f"{counted(count, 'call')} refused, overloaded{bound}", event)


def _question_refused(event: Event, details: Mapping[str, object]) -> str:
    count = int(_number(details, "count") or 1)
    which = "" if count == 1 else ", the last because"
    return _with_reason(f"{counted(count, 'question')} refused and not shown{which}", event)


def _host_refused(_event: Event, details: Mapping[str, object]) -> str:
    count = int(_number(details, "count") or 1)
    host = details.get("host")
    asked = f"{host}:{details.get('port')}" if host else "further hosts"
    told = f"its sandbox refused {asked}" + (f" {count} times" if count > 1 else "")
    allow = details.get("allow")
    why = f"`{allow}` allows it" if allow else str(details.get("reason", "")).replace("-", " ")
    return f"{told} ({why})"


def _session_began(_event: Event, details: Mapping[str, object]) -> str:
    shown = ", ".join(f"{name} {details[name]}" for name in ("profile", "surface") if details.get(name))
    return f"{details.get('client') or 'a client'} connected" + (f" ({shown})" if shown else "")


def _session_ended(_event: Event, details: Mapping[str, object]) -> str:
    told = f"{details.get('client') or 'the client'} left"
    if (seconds := _number(details, "seconds")) is not None:
        told += f" after {span(seconds)}"
    calls = _number(details, "calls")
    return told if calls is None else f"{told} and {counted(int(calls), 'call')}"


def _daemon_started(event: Event, details: Mapping[str, object]) -> str:
    told = f"mcpd {details.get('version')} starts (pid {details.get('pid')})"
    if not details.get("unclean"):
        return told
    last = _number(details, "lastAt")
    heard = "" if last is None else f": its last event was {span(max(0.0, event.at - last))} before"
    return f"{told}; the previous daemon did not stop cleanly{heard}"


def _daemon_stopped(_event: Event, details: Mapping[str, object]) -> str:
    seconds = _number(details, "seconds")
    return "mcpd stops" if seconds is None else f"mcpd stops after {span(seconds)}"


_K = EventKind

_WORDED: Mapping[EventKind, Callable[[Event, Mapping[str, object]], str]] = {
    _K.STARTED: lambda event, _details: f"run {event.run} begins",
    _K.READY: _ready,
    _K.DEGRADED: lambda event, _details: _with_reason("degraded", event),
    _K.ENDED: _ended,
    _K.RESTARTED: _restarted,
    _K.STATE: lambda event, details: _with_reason(str(details.get("state")), event),
    _K.LISTS_CHANGED: _lists_changed,
    _K.EPOCH: lambda _event, details: f"its offer to models has a new version (epoch {details.get('epoch')})",
    _K.LOGIN: lambda event, details: _with_reason(f"login {details.get('outcome')}", event),
    _K.HELD: _held,
    _K.APPROVED: _approved,
    _K.ALLOWED: _allowed,
    _K.DECLINED: lambda _event, details: f"{details.get('tool')} was not allowed: {details.get('why')}",
    _K.SWITCHED: lambda _event, details: (
        f"an operator switched {details.get('what')} {'on' if details.get('on') else 'off'}"
    ),
    _K.RELOADED: _reloaded,
    _K.SIGNAL: lambda _event, details: f"mcpd got {details.get('signal')}",
    _K.REFUSED: _refused,
    _K.OVERLOADED: _overloaded,
    _K.QUESTION_REFUSED: _question_refused,
    _K.HOST_REFUSED: _host_refused,
    _K.INSTANCE_BEGAN: lambda event, _details: _with_reason("instance begun", event),
    _K.INSTANCE_ENDED: lambda event, _details: _with_reason("instance ended", event),
    _K.SESSION_BEGAN: _session_began,
    _K.SESSION_ENDED: _session_ended,
    _K.DAEMON_STARTED: _daemon_started,
    _K.DAEMON_STOPPED: _daemon_stopped,
    _K.LOST: lambda _event, details: f"{details.get('count')} events are lost: the store took no more",
}
