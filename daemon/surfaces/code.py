"""The `code` surface: `search_tools`, `describe_tools` and `run_code`, whose value alone enters the context."""

from __future__ import annotations

from functools import partial

import attrs
import msgspec
from msgspec import Raw

from daemon.errors import InvalidArguments, UnknownTool
from daemon.model import ToolKey
from daemon.surfaces import answers, calling, describing
from daemon.surfaces.additions import may_write
from daemon.surfaces.stubs import stub
from daemon.surfaces.summing import first_instructions, topics
from daemon.surfaces.surface import (
    READS,
    RUNS_ANYTHING,
    Action,
    AwaitListing,
    MetaTool,
    Reply,
    RunScript,
    Surface,
    Target,
    View,
)
from daemon.surfaces.wrapped import Wrapped, Wrapper

SEARCH, DESCRIBE, RUN, RUN_READ_ONLY = "search_tools", "describe_tools", "run_code", "run_read_only_code"

DEFAULT_RESULTS = 20
"""Found tools with a line each, as on the `search` surface."""

MAX_RESULTS = 100
"""Tools in one answer."""

MAX_NAMES = 50
"""Names in one call of `describe_tools`, as in one of `load_mcp_tool`: an unknown one is searched for."""

MAX_POSITION = 10**6
"""The largest cursor; no catalog has so many tools."""

META_TOOLS = (SEARCH, DESCRIBE, RUN, RUN_READ_ONLY)

SEARCH_EXAMPLE = '{"query": "read a file"} or {"category": "NAME"}'
DESCRIBE_EXAMPLE = '{"names": ["SERVER/TOOL"]}'
RUN_EXAMPLE = """{"code": "await call('SERVER/TOOL', {'argument': 1})"}"""


class _FindArguments(msgspec.Struct, forbid_unknown_fields=True):
    query: str | list[str] = ""
    category: str | None = None
    max_results: int = DEFAULT_RESULTS
    cursor: str | None = None


class _StubArguments(msgspec.Struct, forbid_unknown_fields=True):
    names: list[str]


class _RunArguments(msgspec.Struct, forbid_unknown_fields=True):
    code: str
    inputs: dict[str, Raw] = {}


def _search(view: View, arguments: bytes, *, patient: bool) -> Action:
    asked = answers.decode_arguments(arguments, _FindArguments, SEARCH_EXAMPLE)
    category = describing.find_category(view, asked.category) if asked.category else None
    entries = list(view.servers.values()) if category is None else describing.entries_of(view, category)
    waiting = describing.unlisted(entries) if asked.category else describing.starting(entries)
    if patient and (waiting or not view.services.index().covers(view.catalog.servers)):
        return AwaitListing(servers=waiting, indexed=True)
    phrasings = [asked.query] if isinstance(asked.query, str) else asked.query
    start, most = describing.position(asked.cursor, MAX_POSITION), max(1, min(asked.max_results, MAX_RESULTS))
    findings = calling.find_tools(view, phrasings, asked.category, most, start)
    tools = [offered for offered, _score in findings.tools]
    names = [calling.label_of(each.tool) for each in tools]
    lines = answers.lines_within(
        names, lambda number: tools[number].description, answers.room_of(view) - 2 * answers.share_of(view)
    )
    servers = [view.catalog.servers[name] for name in dict.fromkeys(each.tool.server for each in tools)]
    down = (
        name for name, each in zip(names, tools, strict=True) if not view.catalog.servers[each.key[0]].usable
    )
    meta = describing.unavailable(view, entries, down) | first_instructions(view, servers)
    if left := findings.left + len(tools) - len(lines):
        meta |= {"toolsLeft": left, "cursor": str(start + len(lines))}
    if not findings.total and findings.suggestions:
        meta["suggestions"] = list(findings.suggestions)
    return Reply(answers.result({"tools": lines, **({"meta": meta} if meta else {})}))


def _describe(view: View, arguments: bytes, *, patient: bool) -> Action:
    names = answers.decode_arguments(arguments, _StubArguments, DESCRIBE_EXAMPLE).names
    if not 0 < len(names) <= MAX_NAMES:
        raise InvalidArguments(f'"names" must hold 1 to {MAX_NAMES} names: {DESCRIBE_EXAMPLE}')
    waiting = describing.unlisted_of(view, names)
    if patient and (waiting or not view.services.index().covers(view.catalog.servers)):
        return AwaitListing(servers=waiting, indexed=True)
    wanted = calling.resolve(view, dict.fromkeys(names), {*view.servers}, META_TOOLS)
    if not wanted.tools:
        raise next(iter(wanted.failures.values()))
    said = [f"# {name}: {answers.one_line(error.message)}" for name, error in wanted.failures.items()]
    room, shown = answers.room_of(view) - sum(map(len, said)), list[ToolKey]()
    for offered in wanted.tools.values():
        tool = offered.tool
        shape = None if "outputSchema" in tool.parts else view.services.shapes(tool.schema_hash)
        text = stub(calling.label_of(tool), tool, offered.description, shape)
        room -= len(text.encode())
        if room < 0 and shown:
            said.append(f"# {len(wanted.tools) - len(shown)} more do not fit: ask for fewer at a time.")
            break
        said.append(text)
        shown.append(offered.key)
    text = "\n\n".join(said)
    return Reply(answers.result({"stubs": text}, text), shown=tuple(shown))


def _run(view: View, arguments: bytes, *, patient: bool, read_only: bool = False) -> RunScript:  # noqa: ARG001
    asked = answers.decode_arguments(arguments, _RunArguments, RUN_EXAMPLE)
    limits = view.profile.script_limits
    if len(asked.code.encode()) > limits.code_bytes:
        text = f"the script has more than {limits.code_bytes:,} bytes. Nothing was run: split it."
        raise InvalidArguments(text, limit=limits.code_bytes)
    return RunScript(code=asked.code, inputs=msgspec.json.encode(asked.inputs), read_only=read_only)


SCRIPT = Wrapper("arguments", ("tool",), RUN_EXAMPLE)
"""The form of a script's calls in error texts."""


def called(view: View, name: str, arguments: bytes, *, patient: bool, read_only: bool) -> Action:
    """Decide on a script's call as `calling.call_tool`, but `read_only` calls only read; raises CallError."""
    found = calling.find(view, name, patient=patient)
    if isinstance(found, AwaitListing):
        return found
    tool = found.tool
    wrapped = Wrapped(said={"tool": name}, name=name, wrapper=SCRIPT, arguments=Raw(arguments), beside={})
    target = Target(
        server=tool.server,
        name=tool.name,
        label=calling.label_of(tool),
        tool=tool,
        asks=found.asks,
        lasts=False,
    )
    forward = calling.run(view, target, wrapped)
    if read_only and (why := may_write(view, forward)):
        text = f"{forward.label} is not called by {RUN_READ_ONLY}: {why}. Nothing was sent. Use {RUN}."
        raise InvalidArguments(text, tool=forward.name, server=forward.server, call=RUN)
    return forward


NOTE_BYTES = 400
"""Bytes about a value that is too large."""


def script_answer(value: object, printed: str, calls: int, room: int) -> bytes:
    """The result of a script: {result, printed, calls}, raw JSON, whose text is at most `room` bytes.

    A value that is too large is replaced by its beginning. Encodes megabytes: for a worker thread.
    """
    try:
        raw = msgspec.json.encode(value, enc_hook=repr)
    except (TypeError, ValueError, RecursionError):
        raw = msgspec.json.encode(repr(value))
    if len(printed.encode()) > room // 2:
        printed = answers.cut(printed, room // 2 - NOTE_BYTES) + "\n(more was printed)"
    text, left = raw.decode(), room - len(printed.encode())
    told: dict[str, object] = {"result": Raw(raw), "calls": calls}
    if len(raw) > left:
        note = f"the value has {len(raw):,} bytes, and {left:,} fit an answer: return only what you need"
        text = f"{answers.cut(text, left - NOTE_BYTES)}\n({note})"
        told = {"calls": calls, "note": note, "beginning": answers.cut(text, left - NOTE_BYTES)}
    if printed:
        told["printed"], text = printed, f"{printed.rstrip()}\n{text}"
    return answers.result(told, text)


def _describe_run(view: View) -> str:
    limits = view.profile.script_limits
    return (
        "Run a Python script that calls tools: `await call('server/tool', {'argument': value})` gives a tool's"
        " result as data; `await asyncio.gather(...)` calls side by side. The last expression's value is the"
        " answer, with what is printed: return only what you need. A failed call raises ToolError (code, text)."
        " `json`, `re` and `asyncio.gather` are there; no files, network, sleep or classes that inherit."
        f" At most {limits.seconds:g} s and {limits.calls} calls."
    )


RUN_CODE = MetaTool(
    name=RUN,
    describe=_describe_run,
    properties={
        "code": {"type": "string"},
        "inputs": {"type": "object", "description": "Values by variable name."},
    },
    required=("code",),
    hints=RUNS_ANYTHING,
    does=_run,
)
"""For the surface, and for profiles with `runCode` on another one."""

RUN_READS = attrs.evolve(
    RUN_CODE,
    name=RUN_READ_ONLY,
    describe=f"Prefer this to {RUN} for scripts that only call tools with readOnlyHint: true.",
    hints=READS,
    does=partial(_run, read_only=True),
    exists=lambda view: view.profile.read_only_call,
)


def _describe_search(view: View) -> str:
    said = topics(view)
    return f"Find tools by need, keyword, name or category.{f' For example: {said}.' if said else ''}"


class CodeSurface(Surface):
    """The tools of the `code` surface."""

    name = "code"
    tools = (
        MetaTool(
            name=SEARCH,
            describe=_describe_search,
            properties={
                "query": {"type": ["string", "array"], "items": {"type": "string"}, "default": ""},
                "category": {"type": ["string", "null"], "default": None},
                "max_results": {"type": "integer", "default": DEFAULT_RESULTS, "minimum": 1},
            },
            does=_search,
        ),
        MetaTool(
            name=DESCRIBE,
            describe="Get tools' arguments and results as Python stubs.",
            properties={"names": {"type": "array", "items": {"type": "string"}}},
            required=("names",),
            does=_describe,
        ),
        RUN_CODE,
        RUN_READS,
    )

    def instructions(self, view: View) -> str:
        """The use of the tools, and the categories."""
        return (
            f"Tools are called from Python. 1. {SEARCH} finds them. 2. {DESCRIBE} gives their arguments and"
            f" results. 3. {RUN} runs a script that calls them.\n{describing.category_lines(view)}"
        )

    def call_other(self, view: View, name: str, arguments: bytes, *, patient: bool) -> Action:
        """Refuse: scripts call the tools of servers."""
        raise UnknownTool(
            f"there is no tool {answers.quoted(name)} here. Tools of servers are called in a script:"
            f" {RUN}({RUN_EXAMPLE})",
            available=list(META_TOOLS),
        )
