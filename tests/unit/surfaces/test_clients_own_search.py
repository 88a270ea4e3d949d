"""A client's own search finds what mcpd lists: the words of a need stand in the definitions of the meta-tools.

Codex shows its model no tool until the model has searched (`tool_search`). That is a BM25 over one text for
each tool, in which a name with underscores is a single word. What is compared with here is made after its
sources: openai/codex `codex-rs/core/src/tools/handlers/tool_search.rs` (English, eight hits) and
`build_mcp_search_text` of `handlers/mcp.rs` (names, server, description, names of parameters), and those of the
crate `bm25`, `default_tokenizer.rs` and `scorer.rs` (lower case, Unicode's words, stop words, Snowball; k1 1.2,
b 0.75, and an inverse frequency of ln(1 + (N - n + 0.5) / (n + 0.5))).

`recorded_tools.json` has names and beginnings of descriptions that nine public servers listed in November 2026.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import Stemmer

from daemon.surfaces.surface import View
from daemon.surfaces.table import SURFACES
from tests.unit.cases import rows_of
from tests.unit.catalog.samples import after, catalog_of, listed, tool
from tests.unit.surfaces.samples import view_of

RECORDED: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parent / "recorded_tools.json").read_text(encoding="utf-8")
)

(STOP_WORDS,) = rows_of(Path(__file__), "stop_words")
"""English, as of NLTK."""

_WORDS = re.compile(r"[^\W_]+(?:[_'.][^\W_]+)*|\w+")
"""Near enough to Unicode's word boundaries (UAX 29): underscores join, and so do a point or an apostrophe
between letters or digits; a hyphen separates."""

LIMIT = 8
"""Hits of one search."""

_stem = Stemmer.Stemmer("english").stemWord


def terms(text: str) -> list[str]:
    return [_stem(word) for word in _WORDS.findall(text.lower()) if word not in STOP_WORDS]


def text_of(listed_tool: dict[str, Any]) -> str:
    name = listed_tool["name"]
    model_name = re.sub(r"\W", "_", name)
    parts = [f"mcp__mcpd__{model_name}", model_name, name, "mcpd", listed_tool["description"]]
    return " ".join([*parts, *sorted(listed_tool["inputSchema"].get("properties", {}))])


def found(query: str, tools: Sequence[dict[str, Any]], k1: float = 1.2, b: float = 0.75) -> list[str]:
    """The names of the tools that a search finds, best first."""
    texts = {each["name"]: terms(text_of(each)) for each in tools}
    usual = sum(map(len, texts.values())) / len(texts)
    within = Counter(term for text in texts.values() for term in set(text))
    scores = dict.fromkeys(texts, 0.0)
    for name, text in texts.items():
        for term in terms(query):
            often = text.count(term)
            weight = math.log(1 + (len(texts) - within[term] + 0.5) / (within[term] + 0.5))
            scores[name] += weight * often * (k1 + 1) / (often + k1 * (1 - b + b * len(text) / usual))
    best = sorted(scores, key=lambda name: -scores[name])[:LIMIT]
    return [name for name in best if scores[name] > 0]


def view(*names: str, **more: str) -> View:
    """What a client sees of these servers, which nobody has described; `more` is said by the configuration."""
    config = {name: {"command": "unused", "description": more.get(name, "")} for name in names or RECORDED}
    catalog = catalog_of({"mcpServers": config})
    facts = [
        listed(name, *(tool(name, each, description=said) for each, said in RECORDED[name].items()))
        for name in config
    ]
    return view_of(after(catalog, facts))


def tools_of(surface: str, seen: View) -> list[dict[str, Any]]:
    return [json.loads(each) for each in SURFACES[surface].list_tools(seen)]


NEEDS = {
    "what time is it now": "time",
    "take a screenshot of a web page": "playwright",
    "git commit log": "git",
    "read file": "filesystem",
    "add numbers sum": "everything",
}
"""Needs that were tried on Codex 0.169, and the servers whose tools serve them."""

LISTS = {
    "category": "get-category-tools",
    "browse": "list_categories",
    "search": "search_tools",
    "load": "load_mcp_server",
}
"""The meta-tool of each surface that says what there is."""

LINES = ("category", "load")
"""Surfaces with a line for each server."""


@pytest.mark.parametrize("need", NEEDS)
@pytest.mark.parametrize("surface", LISTS)
def test_a_need_finds_the_tool_that_says_what_there_is(surface: str, need: str) -> None:
    assert found(need, tools_of(surface, view()))[:1] == [LISTS[surface]]


@pytest.mark.parametrize(("need", "server"), NEEDS.items())
@pytest.mark.parametrize("surface", LINES)
def test_the_words_of_a_need_stand_in_the_line_of_the_server_that_serves_it(
    surface: str, need: str, server: str
) -> None:
    first = tools_of(surface, view())[0]
    (line,) = [line for line in first["description"].splitlines() if line.startswith(f"- {server}: ")]
    assert set(terms(need)) & set(terms(line))


@pytest.mark.parametrize(("need", "server"), NEEDS.items())
@pytest.mark.parametrize("surface", LISTS)
def test_a_server_alone_is_found_as_well(surface: str, need: str, server: str) -> None:
    assert LISTS[surface] in found(need, tools_of(surface, view(server)))


def test_no_name_is_shown_as_it_is_written_where_it_is_to_be_found_by_its_words() -> None:
    for surface in LISTS:
        said = tools_of(surface, view())[0]["description"]
        assert not any("_" in name and name in said for tools in RECORDED.values() for name in tools)


@pytest.mark.parametrize(
    ("surface", "most"), [("category", 1900), ("browse", 900), ("search", 1400), ("load", 1700)]
)
def test_what_is_said_of_nine_servers_takes_a_few_hundred_tokens(surface: str, most: int) -> None:
    assert len(SURFACES[surface].list_tools(view())[0]) <= most
