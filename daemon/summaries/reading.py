"""The answer of the model, read strictly: what fits is taken, the rest is counted and dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import msgspec

from daemon.errors import McpdError
from daemon.summaries.prompt import MAX_KEYWORD, MAX_KEYWORDS, MAX_SERVER, MAX_TOOL, objection

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from daemon.summaries.prompt import Question

MAX_LISTED = 100
"""Keywords that are looked at: an answer with thousands has its first ones taken."""

_THOUGHT_ENDS = "</think>"
"""Models that think aloud write their answer behind this."""


class Nonsense(McpdError):
    """An answer from which nothing can be taken."""


@attrs.frozen(kw_only=True)
class Said:
    """A sentence that was taken."""

    text: str
    """The sentence itself, on one line."""
    keywords: tuple[str, ...] = ()
    """Words to find it by."""


@attrs.frozen(kw_only=True)
class ModelAnswer:
    """What was taken of an answer."""

    server: Said | None = None
    """About the server; None if that was not asked for, is not there or cannot be taken."""
    tools: Mapping[str, Said] = attrs.field(factory=dict)
    """What the model says of each tool, by the tool's name."""
    refused: tuple[str, ...] = ()
    """Why others cannot be taken, each with its name."""


def read(text: str, question: Question) -> ModelAnswer:
    """Take what an answer says about what was asked for.

    Raises:
        Nonsense: it holds no JSON object of the asked form.
    """
    answer = _object_in(text)
    tools = answer.get("tools")
    entries = tools if isinstance(tools, dict) else {}
    if not isinstance(tools, dict) and not (question.overview is not None and "server" in answer):
        raise Nonsense('the JSON object in the answer has no object "tools"')
    refused: list[str] = []
    taken = {
        tool.name: said
        for tool in question.tools
        if tool.name in entries and (said := _said(tool.name, entries[tool.name], MAX_TOOL, refused))
    }
    server = None
    if question.overview is not None and "server" in answer:
        server = _said("the server", answer["server"], MAX_SERVER, refused)
    return ModelAnswer(server=server, tools=taken, refused=tuple(refused))


def _object_in(text: str) -> dict[str, Any]:
    """The JSON object in a text; fences and a few words around it are forgiven."""
    text = text.rpartition(_THOUGHT_ENDS)[2]
    start, end = text.find("{"), text.rfind("}")
    if not 0 <= start < end:
        raise Nonsense("there is no JSON object in the answer")
    try:
        found = msgspec.json.decode(text[start : end + 1], type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError) as error:
        raise Nonsense(f"what stands between braces in the answer is no JSON: {error}") from None
    return found


def _said(name: str, entry: object, most: int, refused: list[str]) -> Said | None:
    text = entry.get("summary") if isinstance(entry, dict) else None
    if not isinstance(text, str):
        refused.append(f"{name}: no text")
        return None
    text = text.strip()
    if why := objection(text, most):
        refused.append(f"{name}: {why}")
        return None
    return Said(text=text, keywords=_keywords(entry.get("keywords") if isinstance(entry, dict) else None))


def _keywords(listed: object) -> tuple[str, ...]:
    words = listed[:MAX_LISTED] if isinstance(listed, list) else []
    fitting = _once(" ".join(word.split()) for word in words if isinstance(word, str))
    return tuple(word for word in fitting if not objection(word, MAX_KEYWORD))[:MAX_KEYWORDS]


def _once(words: Iterable[str]) -> list[str]:
    return list({word.casefold(): word for word in words}.values())
