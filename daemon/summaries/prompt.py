"""The question to the model, and the strict reading of its answer.

The servers' descriptions are untrusted: they are cut, stripped of invisible characters, and declared to be
data. The answer is checked nevertheless (`objection`), because a prompt is a request, not a barrier.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from itertools import islice
from string import Template
from typing import Any

import attrs
import msgspec

from daemon.errors import McpdError
from daemon.model import Summary, Tool
from daemon.protocol import decoded
from daemon.safety.escape import visible

MAX_TOOL = 160
"""Most characters of a sentence about a tool: as long as a line of a list may be."""

MAX_SERVER = 240
"""Most characters of a sentence about a server."""

MAX_KEYWORDS = 8
"""Most keywords of one tool or server."""

MAX_KEYWORD = 30
"""Most characters of one keyword."""

_ABBREVIATIONS = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|incl|approx)\.", re.IGNORECASE)
_SENTENCE_END = re.compile("[.!?\u2026]['\")\\]]?\\s+\\S|[\u3002\uff01\uff1f]\\s*\\S")

_MARKUP = r"[<>`{}|\\]|\*\*|__\s|\]\(|^\s*(?:[#*+-]|\d+[.)])\s|&#?\w+;"
_LINK = (
    r"\b[a-z][a-z0-9+.-]*:/|\b(?:mailto|javascript|data|file):\S|\bwww\.|\S@\S+\.\S"
    r"|\b[\w-]+\.[a-z]{2,}/|\b[\w-]+\.(?:com|org|net)\b"
)
_MIXED = "(?=\\w*[a-z])\\w*[\u0370-\u03ff\u0400-\u052f]|[\u0370-\u03ff\u0400-\u052f]\\w*[a-z]"
"""A word that mixes Latin with Greek or Cyrillic letters, which look alike and would hide it from patterns."""

_USES = (
    r"call(?:ed)?|used?|invoked?|run|executed?|load(?:ed)?|prefer(?:red)?|cho?ose|select(?:ed)?|trust(?:ed)?"
)
_EARLIER = r"previous|prior|above|earlier|preceding|instructions?|rules|prompts?|guidelines?|everything"
_OUGHT = r"must|should|shall|will|ought|ha(?:s|ve) to|needs? to"
_SECRETS = r"passwords?|secrets?|tokens?|credentials?|keys?|prompts?|conversations?"
_THING = r"(?:tools?|functions?|servers?|first|instead|only)"
_TO_A_MODEL = "|".join(
    (
        rf"\b(?:ignore|disregard|forget|override|bypass)\b.{{0,40}}\b(?:{_EARLIER})\b",
        rf"\byou(?:'ll)? (?:{_OUGHT}|can|may|need|had better|always|never|are (?:now|an?|to|required))\b",
        r"\b(?:system|developer|hidden) (?:prompt|message|instruction)s?\b|\bprompt injection\b|\bjailbreak",
        rf"\b(?:assistants?|models?|llms?|agents?|ais?|claude|(?:chat)?gpt)\b[,:]? (?:{_OUGHT})\b",
        r"\b(?:user|system|assistant|human|instructions?|important|urgent|warning|note)\s*[:!]",
        rf"\b(?:always|never|instead|please|do not|don't|ensure|must|should)\b.{{0,40}}\b(?:{_USES})\b",
        rf"\b(?:{_USES}) (?:only )?(?:this|the|that|these|it)\b(?: \w+){{0,2}} {_THING}\b",
        r"\b(?:call|use|invoke|prefer) (?:this|it|me)\b",
        r"\b(?:instead of|rather than|better than|over) (?:\w+ing )?(?:any |all |the )?others?\b",
        rf"\b(?:reveal|exfiltrate|leak)\b.{{0,40}}\b(?:{_SECRETS})\b",
        "忽略|无视|你必须|你应该|系统提示",
        r"\bignor(?:a|e|iere?) (?:las|les|die|alle|toutes)\b",
    )
)
"""Text that addresses its reader instead of describing something."""

_REFUSED = tuple(
    (re.compile(pattern), why)
    for pattern, why in (
        (_MARKUP, "markup"),
        (_LINK, "a link"),
        (_MIXED, "letters of several scripts in one word"),
        (_TO_A_MODEL, "words to a model"),
    )
)
"""Patterns that refuse folded text, each with the reason for the log."""


def objection(text: str, most: int) -> str:
    """Why a sentence is refused, for the log; empty for an accepted one."""
    return next(_objections(text, most), "")


def _objections(text: str, most: int) -> Iterator[str]:
    if len(text) > most:
        # The other checks would have to read it all.
        yield f"longer than {most} characters"
    if visible(text) != text:
        yield "hidden or control characters"
    if not any(character.isalpha() for character in text):
        yield "no words"
    if _SENTENCE_END.search(_ABBREVIATIONS.sub("", text)):
        yield "more than one sentence"
    # Wide and otherwise dressed-up letters are folded to what they look like.
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    yield from (why for pattern, why in _REFUSED if pattern.search(folded))


DESCRIPTION_CHARACTERS = 600
"""Most characters sent of a tool's description: its purpose comes first, then examples and warnings."""

OVERVIEW_CHARACTERS = 100
"""Most characters sent of a tool's description if it only helps to describe the server."""

OVERVIEW_TOOLS = 100
"""Most tools listed to describe a server; a hundred more would not change the sentence."""

PARAMETERS = 20
"""Most parameter names sent for a tool: they tell tools apart; whole schemas would cost ten times more."""

NAME_CHARACTERS = 100

MAX_SCHEMA = 64 * 1024
"""Most bytes of a schema that is decoded for its parameter names: this happens on the event loop."""

TOOL_TARGET = 120
SERVER_TARGET = 200
"""Characters that the model is told to keep to: fewer than are accepted, as models count badly."""

INSTRUCTIONS = Template(
    (files("daemon.summaries") / "instructions.txt").read_text(encoding="utf-8").rstrip()
).substitute(server=SERVER_TARGET, tool=TOOL_TARGET, keywords=MAX_KEYWORDS, keyword=MAX_KEYWORD)
"""The system message. Not configurable: the form of the answers depends on it."""


SENDS = (
    "For each server that is not switched off: its name and its description in the configuration, and for each"
    f" tool its name, the first {DESCRIPTION_CHARACTERS} characters of its description and the names of its"
    f" first {PARAMETERS} parameters. Never arguments or results of calls, whole schemas, prompts, resources,"
    " variables or paths. mcpd first removes secrets of the configuration from descriptions."
)
"""The data in `message` that leave the machine, in words for operators."""


@attrs.frozen(kw_only=True)
class Question:
    """One question to the model, about one server only, so that its texts cannot spoil others' summaries."""

    server: str
    description: str = ""
    overview: tuple[Tool, ...] | None = attrs.field(default=None, repr=False)
    """All tools of the server, if the question also asks for a sentence about the server."""
    digest: str = ""
    """The digest of all its tools (`catalog.definitions.tools_digest`)."""
    tools: tuple[Tool, ...] = attrs.field(default=(), repr=False)


def message(question: Question) -> str:
    """The user's message: a JSON object with the tools to describe."""
    asked: dict[str, Any] = {"server": {"name": _shown(question.server, NAME_CHARACTERS)}}
    if question.description:
        asked["server"]["description"] = _shown(question.description, DESCRIPTION_CHARACTERS)
    if question.overview is not None:
        asked["overview"] = [_line(tool) for tool in question.overview[:OVERVIEW_TOOLS]]
    asked["tools"] = {tool.name: _described(tool) for tool in question.tools}
    return msgspec.json.encode(asked).decode()


SAMPLE = Question(
    server="kettle",
    tools=(
        Tool(
            server="kettle",
            name="boil_water",
            description="Heats water to a temperature and tells when it is reached. Do not open the lid.",
            raw=b"{}",
            parts={"inputSchema": b'{"properties": {"celsius": {}, "litres": {}}}'},
            schema_hash="",
            content_hash="",
        ),
    ),
)
"""A question about an invented tool, to try a model without sending data of this machine."""


def _line(tool: Tool) -> str:
    return f"{_shown(tool.name, NAME_CHARACTERS)}: {_shown(tool.description, OVERVIEW_CHARACTERS)}"


def _described(tool: Tool) -> dict[str, Any]:
    parameters = _parameters(tool.parts.get("inputSchema", b"{}"))
    return {
        "description": _shown(tool.description, DESCRIPTION_CHARACTERS),
        **({"parameters": parameters} if parameters else {}),
    }


class _Schema(msgspec.Struct):
    properties: dict[str, msgspec.Raw] = {}


_decode_schema = msgspec.json.Decoder(_Schema).decode


def _parameters(schema: bytes) -> list[str]:
    read = decoded(_decode_schema, schema) if len(schema) <= MAX_SCHEMA else None
    return [_shown(name, NAME_CHARACTERS) for name in islice(read.properties if read else (), PARAMETERS)]


def _shown(text: str, characters: int) -> str:
    """The text on one line, cut, without invisible characters, which a model would also read."""
    line = " ".join(text[: 4 * characters].split())
    if visible(line) != line:
        line = "".join(character for character in line if visible(character) == character)
    return line if len(line) <= characters else line[: characters - 1] + "…"


MAX_LISTED = 100
"""Most keywords read from an answer."""

_THOUGHT_ENDS = "</think>"
"""The marker after which a model that thinks aloud writes its answer."""


class UnreadableAnswer(McpdError):
    """An answer of which nothing can be used."""


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The accepted part of an answer: sentences without source and time."""

    server: Summary | None = None
    """The sentence about the server; None if not asked for, missing or refused."""
    tools: Mapping[str, Summary] = msgspec.field(default_factory=dict)
    """The sentences about tools, by the tool's name."""
    refused: tuple[str, ...] = ()
    """Why sentences were refused, each with the name of its tool."""


def read(text: str, question: Question) -> ModelAnswer:
    """Read the model's answer to a question; raises `UnreadableAnswer`."""
    answer = _object_in(text)
    tools = answer.get("tools")
    entries = tools if isinstance(tools, dict) else {}
    if not isinstance(tools, dict) and not (question.overview is not None and "server" in answer):
        raise UnreadableAnswer('the JSON object in the answer has no object "tools"')
    refused: list[str] = []
    taken = {
        tool.name: made
        for tool in question.tools
        if tool.name in entries and (made := _summary(tool.name, entries[tool.name], MAX_TOOL, refused))
    }
    server = None
    if question.overview is not None and "server" in answer:
        server = _summary("the server", answer["server"], MAX_SERVER, refused)
    return ModelAnswer(server=server, tools=taken, refused=tuple(refused))


def _object_in(text: str) -> dict[str, Any]:
    """The JSON object in a text; code fences and words around it are ignored."""
    text = text.rpartition(_THOUGHT_ENDS)[2]
    start, end = text.find("{"), text.rfind("}")
    if not 0 <= start < end:
        raise UnreadableAnswer("there is no JSON object in the answer")
    try:
        found = msgspec.json.decode(text[start : end + 1], type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError) as error:
        raise UnreadableAnswer(f"the text between braces in the answer is not JSON: {error}") from None
    return found


def _summary(name: str, entry: object, most: int, refused: list[str]) -> Summary | None:
    text = entry.get("summary") if isinstance(entry, dict) else None
    if not isinstance(text, str):
        refused.append(f"{name}: no text")
        return None
    text = text.strip()
    if why := objection(text, most):
        refused.append(f"{name}: {why}")
        return None
    return Summary(text=text, keywords=_keywords(entry.get("keywords") if isinstance(entry, dict) else None))


def _keywords(listed: object) -> tuple[str, ...]:
    words = listed[:MAX_LISTED] if isinstance(listed, list) else []
    fitting = _once(" ".join(word.split()) for word in words if isinstance(word, str))
    return tuple(word for word in fitting if not objection(word, MAX_KEYWORD))[:MAX_KEYWORDS]


def _once(words: Iterable[str]) -> list[str]:
    return list({word.casefold(): word for word in words}.values())
