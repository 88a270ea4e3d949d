"""What is taken for a link in a result, and how many links are remembered."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from daemon.clients.links import LONGEST, MAX_LINKS, MAX_OWNERS, MAX_SEARCHED, linked_in, links_of, note_links

TEXT = {"type": "text", "text": 'as in {"type":"resource_link","uri":"quoted:"}'}


def found(result: Any) -> tuple[str, ...]:
    return linked_in(json.dumps(result).encode())


def link(uri: object) -> dict[str, object]:
    return {"type": "resource_link", "uri": uri, "name": "x"}


def embedded(uri: object) -> dict[str, object]:
    return {"type": "resource", "resource": {"uri": uri, "text": "y"}}


@pytest.mark.parametrize(
    ("result", "uris"),
    [
        ({"content": [TEXT, link("a:"), embedded("b:"), link("a:")], "isError": False}, ("a:", "b:", "a:")),
        ({"contents": [{"uri": "a:", "text": "t"}, {"uri": "b:", "blob": ""}]}, ("a:", "b:")),
        ({"messages": [{"role": "user", "content": embedded("a:")}, {"content": link("b:")}]}, ("a:", "b:")),
        ({"content": [TEXT]}, ()),
        ({"content": []}, ()),
        ({}, ()),
        ({"structuredContent": {"type": "resource_link", "uri": "a:"}, "content": [TEXT]}, ()),
        # What is of the wrong shape links to nothing.
        ({"content": link("a:")}, ()),
        ({"content": [link(7), link(None), embedded(["a:"]), link("b:")]}, ("b:",)),
        ({"content": ["resource_link", link("b:")]}, ()),
        ({"content": [{"type": "resource", "resource": "a:"}, link("b:")]}, ("b:",)),
        ({"messages": [{"content": [link("a:")]}, {"content": "resource"}, {}]}, ()),
        ({"content": [link("x" * LONGEST), link("b:")]}, ("b:",)),
        (["resource_link"], ()),
        ("resource_link", ()),
    ],
)
def test_links_are_what_the_specification_calls_so(result: Any, uris: tuple[str, ...]) -> None:
    assert found(result) == uris


@given(
    st.recursive(
        st.none() | st.text() | st.integers(), lambda each: st.lists(each) | st.dictionaries(st.text(), each)
    )
)
def test_no_result_breaks_the_search(value: Any) -> None:
    for member in ("content", "contents", "messages"):
        assert isinstance(found({member: value, "x": "resource_link", "contents_": 1}), tuple)


@pytest.mark.parametrize(
    "raw", [b'{"content":[{"type":"resource', b'"resource', b'\xff"resource', b"[" * 9 + b'"resource']
)
def test_no_bytes_break_the_search(raw: bytes) -> None:
    assert linked_in(raw) == linked_in(memoryview(raw)) == linked_in(Raw(raw)) == ()


def test_a_long_result_is_not_looked_through() -> None:
    text = {"type": "text", "text": ""}
    result = {"content": [link("a:"), text]}
    room = MAX_SEARCHED - len(json.dumps(result))
    for more, uris in ((0, ("a:",)), (1, ())):
        text["text"] = "x" * (room + more)
        assert found(result) == uris


def test_the_newest_links_are_remembered() -> None:
    links = dict[str, str]()
    note_links(links, "alpha", [f"{number}:" for number in range(MAX_LINKS)])
    note_links(links, "beta", ["0:"])
    note_links(links, "gamma", ["new:"])
    assert len(links) == MAX_LINKS
    assert "1:" not in links
    assert (links["0:"], links["2:"], links["new:"]) == ("beta", "alpha", "gamma")
    assert len(found({"content": [link(f"{number}:") for number in range(2 * MAX_LINKS)]})) == MAX_LINKS


def test_visitors_without_sessions_share_nothing_with_others() -> None:
    principals = dict[tuple[str, str], dict[str, str]]()
    first = links_of(principals, "token ci: ", "default")
    note_links(first, "alpha", ["a:"])
    assert links_of(principals, "token ci: ", "default") is first
    assert not links_of(principals, "token ci: ", "other")
    assert not links_of(principals, "", "default")
    for number in range(MAX_OWNERS):
        links_of(principals, "token ci: ", "default")
        links_of(principals, f"{number}", "default")
    assert links_of(principals, "token ci: ", "default") is first
    assert not links_of(principals, "0", "default")
