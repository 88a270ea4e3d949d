"""The `code` surface: `search_tools`, `describe_tools`, and `run_code`, whose value alone enters the context.

Models see tools as Python stubs, in which a server's words are literals or one-line comments.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from daemon.catalog.definitions import merged
from daemon.config.jsonc import resolve
from daemon.errors import InvalidArguments, UnknownTool
from daemon.model import Tool, ToolKey
from daemon.protocol import decoded
from daemon.safety.escape import json_line, legible
from daemon.surfaces import answers, calling, describing, finding
from daemon.surfaces.additions import read_only, refuse_writing
from daemon.surfaces.answers import MAX_LINE, one_line
from daemon.surfaces.summing import first_instructions, first_sentence, topics
from daemon.surfaces.surface import (
    RUNS_ANYTHING,
    Action,
    AwaitListing,
    Forward,
    MetaTool,
    Reply,
    RunScript,
    Surface,
    View,
)
from daemon.surfaces.wrapped import Wrapper

if TYPE_CHECKING:
    from daemon.catalog.tool_results import Shape


MAX_DEPTH, MAX_MEMBERS, MAX_OPTIONS, MAX_PARTS = 4, 40, 20, 150
"""Levels of a type (a schema may contain itself), members of an object, alternatives, and parts read."""

MAX_VALUE, MAX_NAME = 40, 128
"""Characters of a value, above which its type is shown, and of a member's name, above which it is left out."""

MAX_CALL, MAX_ABOUT, NEW_WORDS = 88, 60, 3
"""Characters of a call on one line, characters of an argument's description, and the number of its words,
beyond the argument's name and the tool's description, that make it worth its tokens."""

_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_SCHEMAS, _CHOICES = ("inputSchema", "outputSchema"), ("anyOf", "oneOf")
_UNTYPED = frozenset({"required", "not", "title", "description"})
"""Keywords of an alternative that do not restrict its type."""

Schema = dict[str, Any]


def stub(name: str, tool: Tool, description: str, observed: Shape | None) -> str:
    """Show a tool as Python: a comment, `result = await call(NAME, {…})` and, if known, `result: TYPE`."""
    schema, output = (decoded(msgspec.json.decode, tool.parts.get(key, b"{}")) for key in _SCHEMAS)
    start, known = f"result = await call({json_line(name)}, {{", f"{name} {description}".lower()
    lines = [f"    {each}" for each in _Types(schema).arguments(known)]
    whole = start + " ".join(map(str.strip, lines)).removesuffix(",") + "})"
    lines = [whole] if len(whole) <= MAX_CALL and "#" not in whole else [start, *lines, "})"]
    if isinstance(output, dict) and output:
        lines.append(f"result: {_Types(output).of(output)}")
    elif observed is not None:
        lines.append(f"result: {observed.python}  # observed")
    return "\n".join(filter(None, [_comment(first_sentence(description)), *lines]))


class _Types:
    def __init__(self, root: object) -> None:
        self._root, self._left = root, MAX_PARTS

    def arguments(self, known: str) -> list[str]:
        """A line for each argument, required ones first, with comments that say more than `known`."""
        whole, told = self._whole(self._root), dict[bool, list[str]]({True: [], False: []})
        for name, each in _members(whole).items():
            text = str(each.get("description", "")) if isinstance(each, dict) else ""
            new = [word for word in text.lower().split() if word.strip(".,()") not in f"{known} {name.lower()}"]
            about = _comment(text) if len(new) >= NEW_WORDS and len(text) <= MAX_ABOUT else ""
            line = f"{json_line(name)}: {self.of(each, (), MAX_DEPTH - 1)},{about and '  '}{about}"
            told[name in _list(whole, "required")].append(line)
        return told[True] + ["# optional:"] * bool(told[False]) + told[False]

    def of(self, schema: object, seen: tuple[object, ...] = (), depth: int = MAX_DEPTH) -> str:
        if self._left <= 0:
            return "Any"
        if isinstance(schema, dict) and "$ref" in schema:
            depth, seen = (0 if schema["$ref"] in seen else depth), (*seen, schema["$ref"])
        whole = self._whole(schema)
        rest = {key: value for key, value in whole.items() if key not in _CHOICES}
        options = [each for key in _CHOICES for each in _list(whole, key) if isinstance(each, dict)]
        options = [merged(rest, each) for each in options if each.keys() - _UNTYPED]
        values = [whole["const"]] if "const" in whole else _list(whole, "enum")
        self._left -= 1 + len(values[:MAX_OPTIONS])
        types = _list(whole, "type") or [whole.get("type")]
        kinds = [self.of(each, seen, depth) for each in options[:MAX_OPTIONS]]
        kinds = kinds or [_value(each) for each in values[:MAX_OPTIONS]]
        kinds = kinds or [self._typed(whole, each, seen, depth) for each in types[:MAX_OPTIONS]]
        kinds += ["..."] * (max(len(options), len(values)) > MAX_OPTIONS) + ["None"] * bool(
            whole.get("nullable")
        )
        return "Any" if "Any" in kinds else " | ".join(dict.fromkeys(kinds))

    def _whole(self, schema: object) -> Schema:
        """Merge a schema with the target of its reference, and with the schemas that must hold as well."""
        whole = schema if isinstance(schema, dict) else {}
        for part in ({"$ref": whole.get("$ref")}, *_list(whole, "allOf")[:MAX_OPTIONS]):
            found = resolve(self._root, part["$ref"]) if isinstance(part, dict) and "$ref" in part else part
            whole = merged(whole, found) if isinstance(found, dict) else whole
        return {key: value for key, value in whole.items() if key not in {"$ref", "allOf"}}

    def _typed(self, schema: Schema, kind: object, seen: tuple[object, ...], depth: int) -> str:
        if kind == "array" or (kind is None and "items" in schema):
            items = _list(schema, "prefixItems") or _list(schema, "items") or [schema.get("items")]
            inner = [self.of(each, seen, depth - 1) for each in items[:MAX_OPTIONS] if depth > 0]
            return f"[{', '.join(inner)}]" if inner and inner != ["Any"] else "list"
        if kind != "object" and (kind is not None or not _dict(schema, "properties")):
            return _TYPES.get(str(kind), "Any")
        told, others = list[str](), _dict(schema, "additionalProperties")
        for name, each in _members(schema).items() if depth > 0 else ():
            inside, needed = self.of(each, seen, depth - 1), name in _list(schema, "required")
            told.append(f"{json_line(name)}: {inside if needed else f'NotRequired[{inside}]'}")
        told += [f"str: {self.of(others, seen, depth - 1)}"] if others and depth > 0 else []
        return f"{{{', '.join(told)}}}" if told else "dict"


def _list(schema: Schema, key: str) -> list[Any]:
    return found if isinstance(found := schema.get(key), list) else []


def _dict(schema: Schema, key: str) -> Schema:
    return found if isinstance(found := schema.get(key), dict) else {}


def _members(schema: Schema) -> Schema:
    """The members of an object, with `...` for those that are left out."""
    found = _dict(schema, "properties")
    named = [each for each in found.items() if len(each[0]) <= MAX_NAME][:MAX_MEMBERS]
    return dict([*named, ("...", {})] if len(named) < len(found) else named)


def _value(value: object) -> str:
    if isinstance(value, list | dict) or len(str(value)) > MAX_VALUE:
        return type(value).__name__
    return json_line(value) if isinstance(value, str) else str(value)


def _comment(text: str) -> str:
    line = one_line(legible(" ".join(text.split())), MAX_LINE)
    return f"# {line}" if line else ""


SEARCH, DESCRIBE, RUN, RUN_READ_ONLY = "search_tools", "describe_tools", "run_code", "run_read_only_code"

META_TOOLS = (SEARCH, DESCRIBE, RUN, RUN_READ_ONLY)

DESCRIBE_EXAMPLE = '{"names": ["SERVER/TOOL"]}'
RUN_EXAMPLE = """{"code": "await call('SERVER/TOOL', {'argument': 1})"}"""


class _StubArguments(msgspec.Struct, forbid_unknown_fields=True):
    names: list[str]


class _RunArguments(msgspec.Struct, forbid_unknown_fields=True):
    code: str
    inputs: dict[str, Raw] = {}


def _search(view: View, arguments: bytes, *, patient: bool) -> Action:
    asked = answers.decode_arguments(arguments, finding.SearchArguments, finding.EXAMPLE)
    found = finding.search(view, asked, patient=patient)
    if isinstance(found, AwaitListing):
        return found
    findings, entries = found
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
    findings = findings.first(len(lines))
    if findings.left:
        meta |= {"toolsLeft": findings.left, "cursor": str(findings.end)}
    if not findings.total and findings.suggestions:
        meta["suggestions"] = list(findings.suggestions)
    return Reply(answers.result({"tools": lines, **({"meta": meta} if meta else {})}))


def _describe(view: View, arguments: bytes, *, patient: bool) -> Action:
    names = answers.decode_arguments(arguments, _StubArguments, DESCRIBE_EXAMPLE).names
    waiting = describing.unlisted_of(view, names)
    if patient and (waiting or not view.services.index().covers(view.catalog.servers)):
        return AwaitListing(servers=waiting, indexed=True)
    wanted = finding.resolve(view, names, {*view.servers}, META_TOOLS, DESCRIBE_EXAMPLE)
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


_FENCED = re.compile(r"\s*```(?:python|py)?[ \t]*\n(.*?)```\s*", re.DOTALL)


def _run(view: View, arguments: bytes, *, patient: bool) -> RunScript:  # noqa: ARG001 - as any meta-tool
    asked = answers.decode_arguments(arguments, _RunArguments, RUN_EXAMPLE)
    fenced, most = _FENCED.fullmatch(asked.code), view.profile.script_limits.code_bytes
    code = fenced[1] if fenced else asked.code
    if len(code.encode()) > most:
        text = f"the script has more than {most:,} bytes. Nothing was run: split it."
        raise InvalidArguments(text, limit=most)
    return RunScript(code=code, inputs=msgspec.json.encode(asked.inputs))


_SCRIPT = Wrapper("arguments", ("tool",), RUN_EXAMPLE)


def called(view: View, sent: bytes, *, patient: bool, read_only: bool) -> Action:
    """Decide on a script's call, as `calling.call_tool`; `read_only` allows only reading. Raises CallError."""
    action = calling.call_by_name(view, _SCRIPT.unwrap(sent), patient=patient)
    if read_only and isinstance(action, Forward):
        refuse_writing(view, action, RUN_READ_ONLY, f"Use {RUN}.", RUN)
    return action


NOTE_BYTES = 400
"""Bytes reserved for the note on a value that is too large."""


def script_answer(value: str, printed: str, calls: int, room: int) -> bytes:
    """Make a script's result, raw JSON {result, printed, calls} whose text has at most `room` bytes.

    A value (JSON) that is too large is replaced by its beginning. Megabytes need a worker thread.
    """
    raw = msgspec.json.encode(json.loads(value))
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
        " result as data; `await asyncio.gather(...)` calls side by side. The answer is the last expression's"
        " value and the printed text: return only what you need. A failed call raises ToolError (code, text)."
        " `json`, `re` and `asyncio.gather` are there; no files, network, sleep or classes that inherit."
        f" {DESCRIBE} shows a tool's arguments and result as Python."
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
DESCRIBE_TOOLS = MetaTool(
    name=DESCRIBE,
    describe="Get tools' arguments and results as Python stubs.",
    properties={"names": {"type": "array", "items": {"type": "string"}}},
    required=("names",),
    does=_describe,
)
ADDED = DESCRIBE_TOOLS, RUN_CODE, read_only(RUN_READ_ONLY, RUN_CODE, "scripts that only call tools")
"""Added by profiles with `runCode` to other surfaces, which do not show the types of results."""


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
                "max_results": {"type": "integer", "default": finding.DEFAULT_RESULTS, "minimum": 1},
            },
            does=_search,
        ),
        *ADDED,
    )

    def instructions(self, view: View) -> str:
        """Explain how to use the tools, and name the categories."""
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
