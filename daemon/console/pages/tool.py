"""The page of one tool: what is said of it, what it takes, and who has loaded it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from daemon.catalog.loaded import is_anonymous, judge_in
from daemon.catalog.permissions import annotations_of
from daemon.console.page import ConsoleAction, ConsolePage, Fragment, server_page, session_page, with_query
from daemon.console.pages.tools import LOADED_SECONDS, why_off
from daemon.errors import McpdError
from daemon.operators.describe import DESCRIBE, LONGEST, DescribeParams, described
from daemon.operators.loaded_words import SOURCES, STATUSES
from daemon.operators.sessions import MAX_LISTED
from daemon.operators.tool import TOOL, ToolParams
from daemon.safety.escape import document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from daemon.catalog.loaded import LoadedTool
    from daemon.console.page import Viewer
    from daemon.model import Tool, ToolKey
    from daemon.operators.base import OperatorContext

MAX_JSON = 100_000
"""Most characters of a definition that are shown: a tool may have a megabyte, and a page must not."""

MAX_ARGUMENTS = 200
"""Most arguments that are listed; the definition has all."""

MAX_SESSIONS = 100
"""Most sessions that are listed."""


async def _fragments(viewer: Viewer) -> Mapping[str, Sequence[Fragment]]:
    context = viewer.context
    key = viewer.path["server"], viewer.path["tool"]
    told: Any = await TOOL.run(context, ToolParams(server=key[0], tool=key[1]))
    entry = context.catalog.servers[key[0]]
    known = (entry.tools or {})[key[1]]
    off, change = why_off(context.catalog, key), told["changed"] or {}
    facts = {
        "name": "/".join(key),
        "tool": key[1],
        "server": {"name": key[0], "address": server_page(key[0])},
        "may_change": viewer.may_change,
    }
    state = {
        **facts,
        "state": "off" if off else "on" if entry.usable else "unavailable",
        "why": off or ("" if entry.usable else f"server {key[0]} is {entry.status.state}"),
        "server_off": entry.disabled,
        "categories": [
            {"name": name, "address": with_query("/tools", category=name)} for name in told["categories"]
        ],
        "hash": known.schema_hash,
        "since": round(change.get("at", entry.since.get(key[1], entry.begun))),
        "change": change.get("what", ""),
        "events": with_query("/events", server=key[0], what="tools"),
        "epoch": entry.epoch,
        "annotations": _annotations(known),
        "says": known.parts.get("annotations", b"{}").strip() not in {b"{}", b"null"},
        "hidden": entry.hidden.get(key[1], ""),
    }
    texts = {
        **facts,
        "own": known.description,
        "ours": described(context.config, key, told["categories"]),
        "longest": LONGEST,
    }
    schema = {
        "arguments": list(_arguments(known)),
        "definition": document(msgspec.json.decode(known.raw))[:MAX_JSON],
        "example": None if told["example"] is None else document(told["example"]),
    }
    loaded = await _sessions(context, key)
    return {
        "tool": [
            Fragment(id=f"tool-{part}", template=f"tool_{part}.html", values=values)
            for part, values in (("state", state), ("texts", texts), ("schema", schema), ("loaded", loaded))
        ]
    }


TOOL_PAGE = ConsolePage(
    path="/tools/{server}/{tool}",
    title="Tool",
    template="tool.html",
    fragments=_fragments,
    calls_every=LOADED_SECONDS,
    in_navigation=False,
)


async def _describe(viewer: Viewer, fields: Mapping[str, str]) -> str:
    text = None if fields.get("reset") else fields.get("text", "")
    told: Any = await DESCRIBE.run(viewer.context, DescribeParams(fields.get("tool", ""), text))
    what = "its server's own description" if text is None else "this description"
    places = "; ".join(f"{each['place']} in {each['file']}" for each in told["places"])
    when = "already" if told["already"] else "now"
    return f"{told['tool']} has {what} {when}{f' ({places})' if places else ''}."


DESCRIBE_TOOL = ConsoleAction(path="/tools/describe", act=_describe)


def _annotations(tool: Tool) -> list[str]:
    """What a tool does as its server says: the server's word, and MCP's defaults where it says nothing."""
    said = annotations_of(tool)
    words = {
        "only reads": said.read_only,
        "may destroy something": said.destructive,
        "may be called twice": said.idempotent,
        "reaches into the open world": said.open_world,
    }
    return [word for word, holds in words.items() if holds]


def _arguments(tool: Tool) -> Iterator[dict[str, object]]:
    """The arguments in the input schema, a row each; none where the schema is written in another way."""
    schema = msgspec.json.decode(tool.parts.get("inputSchema", b"{}"))
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return
    required = schema.get("required")
    for name, each in list(properties.items())[:MAX_ARGUMENTS]:
        said = each if isinstance(each, dict) else {}
        yield {
            "name": name,
            "type": _type_of(said),
            "required": isinstance(required, list) and name in required,
            "description": str(said.get("description", "")),
            "default": document(said["default"]) if "default" in said else "",
        }


def _type_of(schema: Mapping[str, Any]) -> str:
    if isinstance(schema.get("enum"), list):
        return "one of " + ", ".join(document(each) for each in schema["enum"][:MAX_ARGUMENTS])
    found = schema.get("type")
    if isinstance(found, list):
        return " or ".join(map(str, found))
    return str(found) if found else "see the definition"


async def _sessions(context: OperatorContext, key: ToolKey) -> dict[str, object]:
    """The sessions that have loaded a tool: those in use, then those that are kept of clients who are away."""
    sessions, kept = list(_in_use(context, key)), True
    in_use = {record.key for record, _users in context.clients.in_use()}
    try:
        stored = await context.archive.sessions(MAX_LISTED)
    except McpdError:
        stored, kept = (), False
    for record in stored:
        held = record.loaded.tools.get(key)
        if held is not None and record.key not in in_use and not is_anonymous(record.key):
            sessions.append(_holder(context, record.key, record.client, held, away=True))
    return {"sessions": sessions[:MAX_SESSIONS], "kept": kept, "most": MAX_LISTED}


def _in_use(context: OperatorContext, key: ToolKey) -> Iterator[dict[str, object]]:
    """The sessions in use that have loaded a tool, named and numbered ones."""
    for record, _users in context.clients.in_use():
        if (held := record.loaded.tools.get(key)) is not None and not is_anonymous(record.key):
            yield _holder(context, record.key, record.client, held)
    for each in context.clients.statistics():
        if each.key is None and (held := each.own.tools.get(key)) is not None:
            yield _holder(context, f"#{each.number}", each.client, held)


def _holder(
    context: OperatorContext, session: str, client: str, held: LoadedTool, *, away: bool = False
) -> dict[str, object]:
    verdict = judge_in(context.catalog, held)
    return {
        "session": {"name": session, "address": session_page(session)},
        "client": client,
        "status": str(verdict.status),
        "words": STATUSES[verdict.status],
        "reason": verdict.reason,
        "source": SOURCES[held.source],
        "at": round(held.at),
        "away": away,
    }
