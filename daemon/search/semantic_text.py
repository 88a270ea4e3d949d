"""What is encoded: a tool and a query as weighted texts."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from daemon.search.claims import without_praise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from daemon.model import Tool
    from daemon.search.semantic import Passage

LEAD_WEIGHT = 1.0
"""The name and the first sentence: what the tool is. Cosines of three short texts summed beat that of one long
text: 0.63 instead of 0.59 recall@5, mean of the three livemcp sets."""

WHOLE_WEIGHT = 1.0
"""Name, whole description, and what the server is for."""

PARAMETERS_WEIGHT = 0.5
"""Parameters tell tools of one kind apart; as much weight as the rest hurts where they are generic."""

LEAD_CHARACTERS = 300
"""A first sentence longer than this is no sentence."""

DESCRIPTION_CHARACTERS = 1500
"""Of a description: the mean of more words says less, and a hostile one takes a millisecond at most."""

SERVER_CHARACTERS = 300
"""Of a server's description: it must not drown the tool's own words."""

PARAMETERS_CHARACTERS = 800
"""Of the parameters: the first dozen."""

PHRASINGS = 8
"""How many phrasings of a query are encoded: more say nothing new, and each takes up to a millisecond."""

PHRASING_CHARACTERS = 1000
"""Of one phrasing: longer than any request that somebody typed."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s|[\n。]")
_BOUNDARY = re.compile(r"[_\-./]+|(?<=[a-z0-9])(?=[A-Z])")


def passage_of_tool(tool: Tool, server_description: str) -> Passage:
    """A tool's texts: its lead, the whole of its description with its server's, its parameters."""
    called = _spaced(_earnest(tool.name))
    name = f"{_spaced(tool.server)} {called}"
    description = _clean(_earnest(tool.description[:DESCRIPTION_CHARACTERS])).strip()
    lead = _SENTENCE_END.split(description, maxsplit=1)[0][:LEAD_CHARACTERS]
    server = _clean(server_description[:SERVER_CHARACTERS])
    parameters = " ".join(_parameters(tool))[:PARAMETERS_CHARACTERS]
    return (
        (LEAD_WEIGHT, f"{name}. {lead}"),
        (WHOLE_WEIGHT, f"{name}. {description} {server}"),
        (PARAMETERS_WEIGHT, f"{called}: {_clean(parameters)}"),
    )


def passage_of_query(phrasings: Sequence[str]) -> Passage:
    """A query's texts: its phrasings, alike; empty if none says anything."""
    kept = [_clean(phrasing[:PHRASING_CHARACTERS]).strip() for phrasing in phrasings[:PHRASINGS]]
    return tuple((1.0, phrasing) for phrasing in dict.fromkeys(kept) if phrasing)


def _earnest(text: str) -> str:
    return without_praise(text)[0]


def _spaced(name: str) -> str:
    """The words of a name: an encoder knows `read file`, not `read_file`."""
    return _BOUNDARY.sub(" ", _clean(name))


def _clean(text: str) -> str:
    """Without lone surrogates, which a tokenizer refuses."""
    return text.encode(errors="replace").decode()


def _parameters(tool: Tool) -> Iterator[str]:
    """The names of all parameters, then what is said about each; none of a schema that is not an object's."""
    properties = _properties(tool)
    for name in islice(properties, PARAMETERS_CHARACTERS):
        yield _spaced(name[:PARAMETERS_CHARACTERS])
    for described in islice(properties.values(), PARAMETERS_CHARACTERS):
        text = described.get("description") if isinstance(described, dict) else None
        if isinstance(text, str):
            yield text[:PARAMETERS_CHARACTERS]


def _properties(tool: Tool) -> dict[str, Any]:
    try:
        schema = msgspec.json.decode(tool.parts.get("inputSchema", b"{}"))
    except (msgspec.DecodeError, RecursionError):
        return {}
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties if isinstance(properties, dict) else {}
