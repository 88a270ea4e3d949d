"""The types of tunable numbers and of checked values (`Annotated`); numbers are seconds and bytes."""

from __future__ import annotations

import math
import pwd
import re
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, TypeAlias

import attrs

from daemon.kit.wording import MIB, quoted

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_STEPS = "KMGT"

DURATION = r"(?:[1-9][0-9]{0,8}(?:\.[0-9]{1,3})?|0\.[0-9]{0,2}[1-9])(?:ms|[smhd])"

SIZE = r"[1-9][0-9]{0,5}(?:\.[0-9]{1,3})? ?[kKmMgGtT](?:i?[bB])?"
"""Matches a size; six digits of TiB stay below 2^63."""

USER = r"[A-Za-z_][A-Za-z0-9_.@-]{0,63}"
"""Matches a user's name; directory services allow more than useradd(8)."""


def seconds(text: str) -> float:
    """Convert a text that matches `DURATION`; `off` is infinity."""
    if text == "off":
        return math.inf
    number, unit = _split(text)
    return number * _SECONDS[unit]


def size(text: str) -> int:
    """Convert a text that matches `SIZE`: `kB` is 1000 bytes as in SI, `KiB` and `k` are 1024."""
    number, unit = _split(text)
    step = 1000 if unit[1:].lower() == "b" else 1024
    return int(number * step ** (1 + _STEPS.index(unit[0].upper())))


def user(name: str) -> int:
    """The uid of a user of this machine. Raises ValueError if there is no such user."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise ValueError(f"this machine has no user '{name}'") from None


def _split(text: str) -> tuple[float, str]:
    found = re.match(r"[0-9.]+", text)
    assert found is not None
    return float(found[0]), text[found.end() :].strip()


@attrs.frozen
class Rule:
    """A check of one value."""

    problem: Callable[[Any], str]
    """Returns the problem and the remedy; empty if the value is valid."""
    schema: Mapping[str, int] = attrs.field(factory=dict, eq=False)
    """The same rule in JSON Schema, as far as possible."""


def at_least(least: int) -> Rule:
    """Refuse smaller numbers."""
    return Rule(lambda made: "" if made >= least else f"must be at least {least}", {"minimum": least})


def more_than(limit: int) -> Rule:
    """Refuse smaller numbers and the limit itself."""
    return Rule(lambda made: "" if made > limit else f"must be more than {limit}", {"exclusiveMinimum": limit})


def at_most(most: int) -> Rule:
    """Refuse larger numbers."""
    return Rule(
        lambda made: "" if made <= most else f"{made} is too much; it must be {most} or less", {"maximum": most}
    )


Problems: TypeAlias = "Iterator[tuple[str, str]]"
"""Contradictions within an object, each as trail and message."""


def like(pattern: re.Pattern[str], message: str) -> Rule:
    """Refuse a text that does not match; `{}` in the message stands for the quoted text."""
    return Rule(lambda text: "" if pattern.fullmatch(text) else message.replace("{}", quoted(text)))


@attrs.frozen
class OrText:
    """A number that may also be written as text."""

    pattern: str
    number: Callable[[str], float]
    """Converts the text; raises ValueError if it is no number."""
    words: str


_TIMES = "30s, 10m, 2h, 1d"
_TIME = OrText(DURATION, seconds, f"{_TIMES}, or a number of seconds")

Seconds = Annotated[float, more_than(0), _TIME]
Patience = Annotated[float, at_least(0), _TIME]
Duration = Annotated[
    float, more_than(0), OrText(f"off|{DURATION}", seconds, f"{_TIMES}, off, or a number of seconds")
]
"""A positive time; `off` is infinity."""
Bytes = Annotated[int, at_least(1), OrText(SIZE, size, "512MiB, 2GB, or a number of bytes")]
UserId = Annotated[int, at_least(0), OrText(USER, user, "the name or the number of a user")]
Count = Annotated[int, at_least(1)]
Cores = Annotated[float, more_than(0)]
Capacity = Annotated[int, at_least(0)]
AnswerTokens = Annotated[int, at_least(500), at_most(65_536)]
"""Fewer tokens leave no room for names. More than 256 KiB, built in one turn, is more than a model reads."""


class RestartType(StrEnum):
    """OTP's restart types."""

    PERMANENT = "permanent"
    TRANSIENT = "transient"
    TEMPORARY = "temporary"


@attrs.frozen(kw_only=True)
class Timeouts:
    """Limits on waiting for a server. Times are seconds unless a unit is given."""

    connect: Seconds = 20
    """Limit for connecting."""
    initialize: Seconds = 30
    """Limit for the MCP handshake."""
    first_initialize: Seconds = 120
    """Limit for npx, uvx and docker, at first and after failures, to install packages."""
    list: Seconds = 15
    """Limit for listing the tools once."""
    probe: Seconds = 3
    """Limit for finding out whether a server speaks the modern era."""
    call: Seconds = 60
    """Limit for a tool call. Each progress notification restarts it."""
    call_max: Duration = 600
    """Limit for a tool call in all. off: no limit."""
    queue: Seconds = 60
    """Limit for a call that waits for a place at the server."""
    ping_interval: Duration = 25
    """Silence after which mcpd pings a server. off: never."""
    ping: Seconds = 10
    """Limit for the answer to a ping."""
    missed_pings: Count = 3
    """Unanswered pings in a row after which the connection counts as lost."""
    refresh: Seconds = 600
    """Time after which mcpd lists the tools again unasked."""
    stop_eof: Patience = 2
    """Time that a child has to exit after its stdin is closed."""
    stop_term: Patience = 2
    """Time that a child has to exit after SIGTERM."""
    wake: Patience = 2
    """Time that a call waits for a stopped server to start."""


@attrs.frozen(kw_only=True)
class ServerLimits:
    """Limits of one server. Sizes are bytes unless a unit is given."""

    in_flight: Count = 64
    """Concurrent calls to the server."""
    queue: Capacity = 64
    """Calls that may wait for a place. Further ones fail as `Overloaded`."""
    message_bytes: Bytes = 16 * MIB
    """Largest message accepted from the server."""
    output_bytes: Bytes | None = None
    """Largest tool result passed to a client."""
    calls_per_minute: Count | None = None
    """Calls per minute of all clients, in bursts of up to ten seconds' worth. Further calls wait. null: no
    limit."""
    instances: Count = 16
    """Concurrent instances of a divided server. A further one ends the longest unused one. If all are busy,
    the call fails as `Overloaded`."""
    memory_bytes: Bytes | None = None
    """Memory of the child and its descendants (stdio)."""
    cpu: Cores | None = None
    """CPUs of all its processes, such as 1.5 (control groups)."""
    pids: Count | None = None
    """Processes and threads (control groups)."""


@attrs.frozen(kw_only=True)
class ProfileLimits:
    """Limits of a profile's clients."""

    calls_per_minute: Count | None = None
    """Calls per minute of the profile's clients."""


@attrs.frozen(kw_only=True)
class ScriptLimits:
    """Limits of one script (`run_code`)."""

    seconds: Seconds = 30.0
    """Longest run, without a user's time to answer questions."""
    memory: Bytes = 64 * 1024 * 1024
    """Memory of the script's values."""
    calls: Count = 100
    """Calls that a script may make."""
    parallel: Annotated[int, at_least(1), at_most(64)] = 8
    """Concurrent calls of a script. Further calls wait."""
    code_bytes: Bytes = 64 * 1024
    """Longest script."""


ResultTokens = Annotated[int, at_least(500), at_most(1_000_000)]


@attrs.frozen(kw_only=True)
class Results:
    """Results that are too large for a model's context."""

    max_tokens: ResultTokens | None = None
    """Longest result in tokens of 4 bytes. Of a longer one, the client gets both ends and a link. null: no
    limit."""


@attrs.frozen(kw_only=True)
class Restart:
    """Rules for restarting a server that ended. Times are seconds unless a unit is given."""

    type: RestartType = RestartType.PERMANENT
    """permanent: always. transient: unless the exit status was 0. temporary: never."""
    base: Seconds = 1.0
    """First delay, doubled by each further failure."""
    cap: Seconds = 60.0
    """Longest delay."""
    floor: Patience = 0.5
    """Shortest delay, whatever the jitter."""
    free_after: Patience = 10.0
    """Healthy time after which the next restart is immediate."""
    stable_after: Seconds = 120.0
    """Healthy time after which mcpd forgets earlier failures."""
    intensity: Count = 5
    """Failures within `period` beyond which it is a crashloop."""
    period: Seconds = 60.0
    """Time in which failures count."""
    parked: Seconds = 300.0
    """Time between starts that are likely to fail, as without the command."""


@attrs.frozen(kw_only=True)
class Limits:
    """Limits of all clients and servers together."""

    client_message_bytes: Bytes = 4 * MIB
    """Largest message accepted from a client."""
    connections: Count = 1024
    """Concurrent client connections."""
    client_queue_bytes: Bytes = 8 * MIB
    """Bytes that may wait for a slow client. Above it, mcpd disconnects a client that reads nothing for 30
    s."""
    index_characters: Count = 6000
    """Characters of a lazy surface's first list of categories or servers."""
    starts: Count = 4
    """Servers that start concurrently. As many again may start because they are called or were in use."""


class AuditFailure(StrEnum):
    """The effect on calls while the audit cannot be written."""

    OPEN = "open"
    CLOSED = "closed"


@attrs.frozen(kw_only=True)
class AuditKeys:
    """The audit: a record of every decision, in files that cannot be edited unseen (docs/audit.md)."""

    enabled: bool = True
    """false: no audit."""
    days: Count = 30
    """Days until a file is deleted."""
    max_bytes: Bytes = 1024 * 1024 * 1024
    """Bytes of all files; the oldest are deleted first."""
    arguments: bool = False
    """true: records have the calls' arguments without secrets, up to 64 KiB, besides their digest."""
    fail: AuditFailure = AuditFailure.OPEN
    """open: calls go on while the audit cannot be written. closed: they are refused."""


# The message omits the URL, which may hold a password: headers are the place for secrets.
CollectorUrl = Annotated[str, like(re.compile(r"https?://[^\s@?#]+"), "write http://HOST:PORT, or https://")]


@attrs.frozen(kw_only=True)
class Telemetry:
    """Traces, metrics and events for OpenTelemetry. Requires the extra `mcpd-supervisor[otel]`."""

    enabled: bool = True
    """false: export nothing in any case."""
    endpoint: CollectorUrl | None = attrs.field(default=None, repr=False)
    """URL of a collector for OTLP over HTTP: http://127.0.0.1:4318. null: `OTEL_EXPORTER_OTLP_ENDPOINT`,
    else nothing is exported."""
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """HTTP headers for the collector, besides `OTEL_EXPORTER_OTLP_HEADERS`."""
    service_name: str | None = None
    """Name of the service, else `OTEL_SERVICE_NAME`, else mcpd."""
    sample_ratio: Annotated[float, at_least(0), at_most(1)] | None = None
    """Share of the traces to keep, 0 to 1, where the client has not decided. null: `OTEL_TRACES_SAMPLER`, else
    all."""
    arguments: bool = False
    """true: spans have the arguments of calls, without known secrets."""
