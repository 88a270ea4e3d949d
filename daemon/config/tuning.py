"""The numbers that can be tuned, with their defaults, and the rules that values can have.

Rules are part of the types (`Annotated`): the reader of files applies them to each value (`structure`), and the
JSON Schema is made of them. All times are seconds, all sizes bytes; in a file both may have a unit.
"""

from __future__ import annotations

import math
import pwd
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import attrs

from daemon.kit.wording import MIB, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_STEPS = "KMGT"

DURATION = r"(?:[1-9][0-9]{0,8}(?:\.[0-9]{1,3})?|0\.[0-9]{0,2}[1-9])(?:ms|[smhd])"
"""A time: a number and its unit."""

SIZE = r"[1-9][0-9]{0,5}(?:\.[0-9]{1,3})? ?[kKmMgGtT](?:i?[bB])?"
"""A number of bytes; six digits of TiB are below 2^63."""

USER = r"[A-Za-z_][A-Za-z0-9_.@-]{0,63}"
"""The name of a user; useradd(8) allows less, directories more."""


def seconds(text: str) -> float:
    """The seconds of a time that matches `DURATION`, or infinity for `off`."""
    if text == "off":
        return math.inf
    number, unit = _split(text)
    return number * _SECONDS[unit]


def size(text: str) -> int:
    """The bytes of a text that matches `SIZE`: `kB` is 1000 of them, as in SI; `KiB` and `k` are 1024."""
    number, unit = _split(text)
    step = 1000 if unit[1:].lower() == "b" else 1024
    return int(number * step ** (1 + _STEPS.index(unit[0].upper())))


def user(name: str) -> int:
    """The number of a user of this machine.

    Raises:
        ValueError: there is no user of that name.
    """
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
    """A value must make sense."""

    problem: Callable[[Any], str]
    """Returns what is wrong with a value and what to write instead; empty if nothing is."""
    schema: Mapping[str, int] = attrs.field(factory=dict, eq=False)
    """The same in JSON Schema, where that can say it."""


def at_least(least: int) -> Rule:
    """The rule that a number is not smaller."""
    return Rule(lambda made: "" if made >= least else f"must be at least {least}", {"minimum": least})


def more_than(limit: int) -> Rule:
    """The rule that a number is larger."""
    return Rule(lambda made: "" if made > limit else f"must be more than {limit}", {"exclusiveMinimum": limit})


def at_most(most: int) -> Rule:
    """The rule that a number is not larger."""
    return Rule(
        lambda made: "" if made <= most else f"{made} is too much; it must be {most} or less", {"maximum": most}
    )


Problems: TypeAlias = "Iterator[tuple[str, str]]"
"""What is wrong between the values of one object: a trail within the object and a sentence, for each."""


def like(pattern: re.Pattern[str], message: str) -> Rule:
    """The rule that a text matches a pattern; `{}` in the message stands for the text in quotes."""
    return Rule(lambda text: "" if pattern.fullmatch(text) else message.replace("{}", quoted(text)))


@attrs.frozen
class OrText:
    """A number may also be written as a text."""

    pattern: str
    """What the text looks like."""
    number: Callable[[str], float]
    """The number that such a text says; raises ValueError if there is none."""
    words: str
    """What may be written, for faults."""


_TIMES = "30s, 10m, 2h, 1d"
_TIME = OrText(DURATION, seconds, f"{_TIMES}, or a number of seconds")

Seconds = Annotated[float, more_than(0), _TIME]
Patience = Annotated[float, at_least(0), _TIME]
Duration = Annotated[
    float,
    more_than(0),
    OrText(f"off|{DURATION}", seconds, f"{_TIMES}, off, or a number of seconds"),
]
"""A time that may also be `off`: it never ends."""
Bytes = Annotated[int, at_least(1), OrText(SIZE, size, "512MiB, 2GB, or a number of bytes")]
UserId = Annotated[int, at_least(0), OrText(USER, user, "the name or the number of a user")]
Count = Annotated[int, at_least(1)]
Capacity = Annotated[int, at_least(0)]
AnswerTokens = Annotated[int, at_least(500), at_most(65_536)]
"""Tokens of an answer: fewer leave no room for a few names and the text around them; more are 256 KiB, which
are built in the turn of one request, and no model reads more at once."""


class RestartType(StrEnum):
    """When a server that ended is started again; the words are OTP's."""

    PERMANENT = "permanent"
    TRANSIENT = "transient"
    TEMPORARY = "temporary"


@attrs.frozen(kw_only=True)
class Timeouts:
    """How long mcpd waits for one server, in seconds."""

    connect: Seconds = 20
    """Seconds to establish the connection."""
    initialize: Seconds = 30
    """Seconds for the MCP handshake."""
    first_initialize: Seconds = 120
    """Seconds for the handshake of the first start of an npx, uvx or docker command, which may install."""
    list: Seconds = 15
    """Seconds for one listing of the tools."""
    probe: Seconds = 3
    """Seconds to find out whether a server speaks the modern protocol."""
    call: Seconds = 60
    """Seconds for a tool call; every progress notification starts them anew."""
    call_max: Duration = 600
    """Seconds for a tool call in total, however much progress it reports; off: no bound."""
    queue: Seconds = 60
    """Seconds that a call may wait in line for a place at the server; then it is refused as `Overloaded`."""
    ping_interval: Duration = 25
    """Seconds of silence after which a server is pinged; off: never."""
    ping: Seconds = 10
    """Seconds for the answer to a ping."""
    missed_pings: Count = 3
    """Pings in a row without an answer after which the connection counts as lost."""
    refresh: Seconds = 600
    """Seconds after which the tools are listed again, even if the server announced no change."""
    stop_eof: Patience = 2
    """Seconds that a child has to exit once its stdin is closed."""
    stop_term: Patience = 2
    """Seconds that a child has to exit after SIGTERM, before it is killed."""
    wake: Patience = 2
    """Seconds that a call waits for a server that is down and being started for it."""


@attrs.frozen(kw_only=True)
class ServerLimits:
    """What one server may take."""

    in_flight: Count = 64
    """Calls that the server works on at the same time."""
    queue: Capacity = 64
    """Calls that may wait for a place, of all clients; more are refused as `Overloaded`."""
    message_bytes: Bytes = 16 * MIB
    """The largest message accepted from the server, in bytes."""
    output_bytes: Bytes | None = None
    """The largest answer to a tool call that is passed on, in bytes; null: whatever `messageBytes` accepts."""
    calls_per_minute: Count | None = None
    """Calls that it gets a minute, of all clients, ten seconds' worth of them at once; more wait in line for
    `timeouts.queue`; null is no limit."""
    instances: Count = 16
    """Instances of it at the same time, where clients do not share one: another one ends the one that was
    unused longest, or is refused as `Overloaded` while all are at work."""
    memory_bytes: Bytes | None = None
    """The most memory that its child and all that it starts may use, in bytes (stdio); null is no limit."""


@attrs.frozen(kw_only=True)
class ProfileLimits:
    """What the clients of one profile may take."""

    calls_per_minute: Count | None = None
    """Calls that they make a minute, all together, ten seconds' worth of them at once; more wait in line for
    `timeouts.queue` of the server; null is no limit."""


@attrs.frozen(kw_only=True)
class Restart:
    """When and how soon a server that ended is started again."""

    type: RestartType = RestartType.PERMANENT
    """permanent: always; transient: unless it exited with status 0; temporary: never."""
    base: Seconds = 1.0
    """Seconds of the first delay; each further failure doubles it."""
    cap: Seconds = 60.0
    """Seconds of the longest delay."""
    floor: Patience = 0.5
    """Seconds of the shortest delay, whatever the jitter says."""
    free_after: Patience = 10.0
    """Seconds of health after which the next restart happens at once."""
    stable_after: Seconds = 120.0
    """Seconds of health after which earlier failures are forgotten."""
    intensity: Count = 5
    """Failed runs within `period` that are tolerated; one more is called a crashloop."""
    period: Seconds = 60.0
    """Seconds in which failed runs are counted."""
    parked: Seconds = 300.0
    """Seconds between tries when trying soon is pointless: no such command, credentials refused."""


@attrs.frozen(kw_only=True)
class Limits:
    """What all clients and servers together may take."""

    client_message_bytes: Bytes = 4 * MIB
    """The largest message accepted from a client, in bytes."""
    connections: Count = 1024
    """Clients connected at the same time."""
    client_queue_bytes: Bytes = 8 * MIB
    """Bytes that may wait for a client before it is behind, and disconnected if it takes nothing for 30 s.
    With an eighth of that waiting it is not read from."""
    index_characters: Count = 6000
    """Characters of the list of categories or servers that a lazy surface shows from the start."""
    starts: Count = 4
    """Servers being started at the same time, so that a boot is no stampede. As many more may be that are
    called, or were in use until just now: they do not wait for the others."""
