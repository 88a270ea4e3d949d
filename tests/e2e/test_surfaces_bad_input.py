"""What clients, servers and configurations can do wrong on the surfaces, against the real daemon."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Daemon, RawClient, serving
from tests.pairwise import at_night
from tests.scripted_server import command, tool
from tests.unit.cases import cases

Json = dict[str, Any]

MANY = 5000
ODD = ["read a file", "🎉 celebrate", "naïve-ünïcode", "a.b:c/d"]
BACKTRACKING = "a" * 127 + "b"
"""128 characters, as many as a name may have: a backtracking engine tries 2^127 ways to fit `^(a+)+$` to it."""


def scripted(path: Path, **script: Any) -> Json:
    """The `mcpServers` entry of a scripted server; its script may be long."""
    path.write_text(json.dumps(script))
    python, *options, _ = command()
    return {"command": python, "args": [*options, f"@{path}"]}


def wide(number: int) -> Json:
    """A tool with a schema of some size."""
    text = f"The {number}th of many: " + "what it is good for. " * 5
    schema = {"type": "object", "properties": {"value": {"type": "string", "description": text}}}
    return tool(f"tool{number}", inputSchema=schema)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    place = tmp_path_factory.mktemp("scripts")
    servers = {
        "first": scripted(place / "first", tools=["echo", "alpha"]),
        "second": scripted(place / "second", tools=["echo", "beta", "get_tools", "search_tools"]),
        "odd": scripted(place / "odd", tools=[*ODD, BACKTRACKING, "a" * 128]),
        "many": scripted(place / "many", tools=[wide(number) for number in range(MANY)], page=500),
        "bare": scripted(place / "bare", tools=MANY),
    }
    categories: Json = {name: {"server": name} for name in servers}
    categories["regex"] = {"server": "odd", "tools": {"includePatterns": ["/^(a+)+$/"]}}
    few = ["first", "second", "odd"]
    profiles = {
        surface: {"surface": surface, "categories": few} for surface in ("browse", "search", "load", "full")
    }
    with serving({"mcpServers": servers, "categories": categories, "profiles": profiles}) as daemon:
        yield daemon


@pytest.fixture
def on(daemon: Daemon) -> Iterator[Callable[[str], RawClient]]:
    """A client with a profile."""
    with ExitStack() as stack:
        yield lambda profile: stack.enter_context(daemon.client()).hello(profile=profile)


def structured(client: RawClient, name: str, **arguments: Any) -> Json:
    """What a call of a meta-tool answers, which must be no refusal."""
    result = client.call(name, arguments)
    assert result["isError"] is False, result
    found: Json = result["structuredContent"]
    return found


def found(client: RawClient, query: Any, **more: Any) -> list[str]:
    """The tools that a search finds."""
    return [each["name"] for each in structured(client, "search_tools", query=query, **more)["tools"]]


def echoed(client: RawClient, name: str, **arguments: Any) -> Any:
    """What a server's tool says, which repeats its arguments."""
    return json.loads(client.call(name, arguments)["content"][0]["text"])


# --- refusals ------------------------------------------------------------------------------------------------


@cases("surface", "name", "arguments", "words")
def test_arguments_that_do_not_fit_are_refused_with_what_would(
    on: Callable[[str], RawClient], surface: str, name: str, arguments: Json, words: str
) -> None:
    error = on(surface).call(name, arguments)["structuredContent"]["error"]
    assert error["code"] == "InvalidArguments"
    assert words in error["message"]


# --- searching -----------------------------------------------------------------------------------------------


def test_an_empty_query_finds_everything_and_an_odd_one_nothing(on: Callable[[str], RawClient]) -> None:
    client = on("search")
    for query in ("", "   ", [], [""], ["", "  "]):
        assert {"alpha", "beta", *ODD} <= set(found(client, query, max_results=100)), query
    for query in ("xyzzy plugh", "!!!", "🎈", "\u0000", "%s'\";--", "(", "*"):
        text = client.call("search_tools", {"query": query})["content"][0]["text"]
        assert text.startswith("Found 0 tool(s)."), query
        assert text.endswith("Available categories: first, second, odd")
    assert "alpha" in found(client, "alpha " + "of many words " * 5000)


def test_a_billion_results_are_as_many_as_there_are_up_to_a_hundred(
    daemon: Daemon, on: Callable[[str], RawClient]
) -> None:
    few = on("search")
    assert len(found(few, "", max_results=10**9)) == len(few.listed()) - 3
    with daemon.client().hello(surface="search") as client:
        every = structured(client, "search_tools", query="", max_results=10**9)
    assert len(every["tools"]) == 100
    assert every["total"] > MANY


def test_a_servers_tool_with_a_meta_tools_name_is_called_by_its_qualified_name(
    on: Callable[[str], RawClient],
) -> None:
    browse, search = on("browse"), on("search")
    described = structured(browse, "get_tools", category="second")["tools"]
    assert {"second__get_tools", "search_tools"} <= set(described)
    assert found(search, "search_tools", max_results=1) == ["second__search_tools"]
    for client, name in ((browse, "second__get_tools"), (search, "second__search_tools")):
        assert echoed(client, "call_tool", tool_name=name, arguments={"from": "it"}) == {"from": "it"}


# --- much ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asking", "category", "prefix"),
    at_night(
        [
            (asking, *named)
            for asking in ("get_tools", "get-category-tools")
            for named in (("many", "tool"), ("bare", "echo"))
        ],
        ("get_tools", "many", "tool"),
        ("get-category-tools", "bare", "echo"),
    ),
)
def test_five_thousand_tools_come_in_parts_each_exactly_once(
    daemon: Daemon, asking: str, category: str, prefix: str
) -> None:
    seen: list[str] = []
    parts = 0
    step: Json = {"name": asking, "arguments": {"category": category}}
    with daemon.client().hello(**({"lazy": True} if asking == "get_tools" else {})) as client:
        while step:
            answer = structured(client, step["name"], **step["arguments"])
            seen += answer["tools"]
            parts += 1
            assert answer["meta"].get("toolsLeft", 0) == MANY - len(seen)
            step = answer["meta"].get("next", {})
        assert seen == [f"{prefix}{number}" for number in range(MANY)]
        assert parts > 1
        for cursor in ("-1", "99999", "one", "", "٣"):
            refused = client.call(asking, {"category": category, "cursor": cursor})
            assert refused["structuredContent"]["error"]["code"] == "InvalidArguments", cursor


def test_five_thousand_tools_are_listed_when_the_switch_is_off(daemon: Daemon) -> None:
    names: list[str] = []
    params: Json | None = {}
    with daemon.client().hello(lazy=False) as client:
        while params is not None:
            result = client.ask("tools/list", params)["result"]
            names += [each["name"] for each in result["tools"]]
            params = {"cursor": result["nextCursor"]} if "nextCursor" in result else None
    assert [name for name in names if name.startswith("tool")] == [f"tool{number}" for number in range(MANY)]


# --- names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ODD)
def test_a_name_with_spaces_or_emoji_is_listed_described_loaded_and_called(
    on: Callable[[str], RawClient], name: str
) -> None:
    full, browse, load = on("full"), on("browse"), on("load")
    assert name in full.listed()
    assert name in structured(browse, "get_tools", category="odd")["tools"]
    assert list(load.load(name)) == [name]
    assert echoed(full, name, a=1) == echoed(load, name, a=1) == {"a": 1}
    assert echoed(browse, "call_tool", tool_name=name, arguments={"a": 1}) == {"a": 1}


def test_a_pattern_that_explodes_elsewhere_is_matched_at_once(daemon: Daemon) -> None:
    with daemon.client().hello(lazy=True) as client:
        assert list(structured(client, "get_tools", category="regex")["tools"]) == ["a" * 128]


PATTERNS = ["/(/", "/[z-a]/", "/(?=a)/", r"/(a)\1/", "/a{2000}/", "/", ""]


@pytest.mark.parametrize("words", [("check",), ("run", "--config")])
def test_patterns_that_do_not_compile_end_with_78_and_their_places(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    chosen = {"server": "time", "tools": {"includePatterns": ["good_*", *PATTERNS]}}
    daemon = Daemon(tmp_path, {"mcpServers": {"time": {"command": "true"}}, "categories": {"c": chosen}}, {})
    done = daemon.outcome(*words, str(daemon.config))
    assert done.returncode == 78
    for number in range(1, 1 + len(PATTERNS)):
        assert f"categories.c.tools.includePatterns[{number}]" in done.stdout + done.stderr
