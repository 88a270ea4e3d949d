"""S6: nothing hidden reaches a model or a terminal; what servers answer to calls is theirs."""

import json
from typing import Any

import pytest

from daemon.safety.escape import hidden_in, visible
from daemon.safety.legible import NOTE
from tests.e2e.harness import RawClient
from tests.security.conftest import SURFACES, Watched
from tests.security.hostile import HIDDEN, READABLE, SLY_TOOL, sly
from tests.security.surfing import Surfer
from tests.unit.cases import cases

DESCRIBED: dict[str, tuple[str, dict[str, Any]]] = {
    "category": ("get-category-tools", {"category": "sly"}),
    "browse": ("get_tools", {"category": "sly"}),
    "search": ("search_tools", {"query": "sly description"}),
    "load": ("load_mcp_tool", {"names": ["sly"]}),
}
"""How each surface describes a tool."""


def strings_of(value: Any) -> list[str]:
    """All strings within a value, keys as well; those that are JSON are looked into, too."""
    match value:
        case str():
            try:
                inner = json.loads(value)
            except ValueError:
                return [value]
            return [value] if isinstance(inner, str) else [value, *strings_of(inner)]
        case list():
            return [text for each in value for text in strings_of(each)]
        case dict():
            return [text for pair in value.items() for each in pair for text in strings_of(each)]
    return []


def hides(value: Any) -> list[str]:
    """The strings of an answer in which something is hidden."""
    return [text for text in strings_of(value) if hidden_in(text)]


def seated(hostile: Watched, surface: str) -> RawClient:
    """A client of that surface, after the handshake."""
    client = hostile.client().hello(profile=surface)
    client.greet()
    return client


@pytest.mark.parametrize("surface", DESCRIBED)
def test_a_model_is_shown_every_hidden_character_spelt_out_and_told_of_it(
    hostile: Watched, surface: str
) -> None:
    with seated(hostile, surface) as client:
        described = client.call(*DESCRIBED[surface])
        listed = client.ask("tools/list")["result"]
    assert not hides([described, listed])
    told = json.dumps([described, listed], ensure_ascii=False)
    assert READABLE in told
    assert "u{202e}" in told
    assert NOTE in "".join(strings_of([described, listed]))


def test_a_tool_on_a_list_of_ours_is_spelt_out_in_all_its_members(hostile: Watched) -> None:
    with seated(hostile, "search") as client:
        tools = {tool["name"]: tool for tool in client.ask("tools/list")["result"]["tools"]}
    shown = tools["sly"]
    assert shown.pop("_meta") == {"anthropic/alwaysLoad": True}
    assert shown.keys() == SLY_TOOL.keys()
    assert not hides(shown)
    spelt = "".join(f"\\u{{{ord(each):x}}}" if hidden_in(each) else each for each in HIDDEN)
    assert shown["title"] == f"Ti{spelt}tle {READABLE}"


def test_switched_off_the_list_is_the_servers_own(hostile: Watched) -> None:
    with seated(hostile, "full") as client:
        tools = {tool["name"]: tool for tool in client.ask("tools/list")["result"]["tools"]}
    assert tools["sly"] == SLY_TOOL


@pytest.mark.parametrize("surface", SURFACES)
def test_what_a_server_refuses_with_is_spelt_out(hostile: Watched, surface: str) -> None:
    asked = {"error": {"code": -32000, "message": sly("wrong"), "data": {sly("key"): [sly("value")]}}}
    with seated(hostile, surface) as client:
        match surface:
            case "category":
                refused = client.run("sly", "act", **asked)
            case "browse":
                refused = client.call("call_tool", {"tool_name": "sly__act", "arguments": asked})
            case "load":
                client.load("sly__act")
                refused = client.call("sly__act", asked)
            case _:
                refused = client.call("sly__act", asked)
    assert refused["isError"]
    assert "u{202e}" in refused["content"][0]["text"]
    assert READABLE in refused["content"][0]["text"]
    assert not hides(refused)


def test_why_a_server_is_not_there_is_spelt_out(hostile: Watched) -> None:
    with seated(hostile, "category") as client:
        described = client.call("get-category-tools", {"category": "refusing"})
    assert "refused" in json.dumps(described)
    assert not hides(described)


def test_what_a_server_answers_to_a_call_is_passed_on_as_it_is(hostile: Watched) -> None:
    answer = {"content": [{"type": "text", "text": sly("an answer")}], "isError": False}
    with seated(hostile, "category") as client:
        assert client.run("sly", "act", result=answer) == answer


def test_arguments_that_do_not_fit_are_refused_without_showing_anything_hidden(hostile: Watched) -> None:
    with seated(hostile, "category") as client:
        refused = client.run("sly", "sly", mode=1)
    assert "InvalidArguments" in refused["content"][0]["text"]
    assert not hides(refused)


@cases("words", "shown")
def test_a_terminal_is_shown_nothing_that_it_would_obey(hostile: Watched, words: list[str], shown: str) -> None:
    said = hostile.run(*words, check=None)
    assert shown in said
    assert visible(said, lines=True) == said


def test_the_log_holds_nothing_that_a_terminal_would_obey(hostile: Watched) -> None:
    said = hostile.said()
    assert "\\u202e" in said
    assert visible(said, lines=True) == said


def test_a_page_of_the_console_and_its_stream_spell_out_what_is_hidden(hostile: Watched) -> None:
    with hostile.client().hello(session="of-sly", profile="load") as client:
        about = {"name": sly("client"), "version": sly("1")}
        client.greet(clientInfo=about)
        client.load("sly")
        client.call(sly("tool"), {})
        surfer = Surfer.let_in(hostile)
        pages = surfer.pages_of(hostile)
        assert {"/ui/sessions/of-sly", "/ui/servers/sly", "/ui/tools/sly/sly"} <= {*pages}
        for page in pages:
            shown = surfer.get(page).text
            assert visible(shown, lines=True) == shown, page
            assert not hides(json.loads(surfer.data(page))), page
        assert READABLE in surfer.get("/ui/tools/sly/sly").text
