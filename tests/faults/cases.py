"""The faults as data: `cases/cases.jsonl` has a row for each.

A row is a verb of `steps`, which says what happens before and afterwards, a name, a server, steps with
their arguments, and perhaps more members of the case. A list that begins with the name of a class is one of
these, with the members that follow. `["times", x, n]` is x so often, `["join", …]` its parts in one text,
and `["bytes", x]` its bytes.
"""

import gzip
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults import steps, visits
from tests.faults.case import Case, Json, Net, Stdio, Step
from tests.faults.steps import again, back, call, same
from tests.faults.upstreams import Act, http
from tests.faults.visits import never_reads, operator, writes
from tests.faults.wire import Fate, Toxic
from tests.unit.cases import rows_of

TABLES = ("stdio", "network", "http", "clients", "operators")
VERBS = {"case": steps.case, "same": same, "again": again, "back": back}
CLASSES = {each.__name__: each for each in (Net, Stdio, Act, Toxic)}
STEPS = {**vars(steps), **vars(visits)}
CIRCLES = http("307 Temporary Redirect", location="/mcp")


def made(value: Any) -> Any:
    """What a part of a row stands for."""
    if isinstance(value, dict):
        return {key: made(each) for key, each in value.items()}
    if not isinstance(value, list):
        return value
    found: Any
    match value:
        case ["times", each, int(count)]:
            found = made(each) * count
        case ["join", *parts]:
            found = "".join(map(made, parts))
        case ["bytes", text]:
            found = made(text).encode(errors="surrogateescape")
        case ["Fate", name]:
            found = Fate[name]
        case [str(name), *members] if name in CLASSES:
            found = CLASSES[name](**made(dict(*members)))
        case _:
            found = [made(each) for each in value]
    return found


def taken(name: str, members: Json | None = None) -> Step:
    """A step, with what a row says of it."""
    return partial(STEPS[name], **made(members or {}))


def computed() -> Iterator[tuple[str, Case]]:
    """Those whose texts are made."""
    called = {"category": "%NAME%", "name": "bytes", "args": {"count": 300_000}}
    asking = {"method": "tools/call", "params": {"name": "call-category-tool", "arguments": called}}
    asked = (json.dumps({"jsonrpc": "2.0", "id": number, **asking}) for number in range(100))
    large = "".join(f"{each}\n" for each in asked).encode()
    name = "a client that never reads large answers"
    yield "clients", same(name, Stdio(), partial(never_reads, request=large, times=1, cut_off=True))
    entries = ",".join(f'"a{number}": {{"comand": "x"}}' for number in range(100))
    faulty = partial(writes, text=f'{{"mcpServers": {{{entries}}}, "lazy": 5}}')
    name = "the configuration becomes a hundred faults"
    yield "operators", same(name, Stdio(), faulty, partial(operator, method="reload", error="comand"))
    packed = http("200 OK", gzip.compress(b" " * 20_000_000), "application/json", content_encoding="gzip")
    unpacks = Net(kind="http", entry={"limits": {"messageBytes": 100_000}}, on={"tools/call": [packed, None]})
    name = "what unpacks to far more than the limit"
    yield "http", same(name, unpacks, partial(call, tool="effect", code="RequestTooLarge"))
    circles = Net(kind="http", on={"tools/call": [*[CIRCLES] * 30, None]})
    name = "a redirect to itself for ever"
    yield "http", back(name, circles, partial(call, tool="effect", code="UpstreamCallError|UpstreamLost"))


def every() -> Iterator[tuple[str, Case]]:
    """All cases, each with its table."""
    for table in TABLES:
        for verb, name, server, happens, *more in rows_of(Path(__file__), table):
            yield table, VERBS[verb](name, made(server), *(taken(*each) for each in happens), **dict(*more))
    yield from computed()


CASES = {f"{table}: {each.name}": each for table, each in every()}
