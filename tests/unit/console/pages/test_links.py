"""Addresses lead to what they name, whatever is in the name."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

import pytest

from daemon.console.page import element_id, server_page, session_page, tool_page, with_query

NAMES = ["git", "a/b", "#4", "/home/me/project", "?q=1&x", "%2F", "ü <b>", ".."]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_one_segment_of_an_address(name: str) -> None:
    for address, segments in (
        (server_page(name), ["servers", name]),
        (session_page(name), ["sessions", name]),
        (tool_page("git", name), ["tools", "git", name]),
    ):
        found = urlsplit(address)
        assert (found.query, found.fragment) == ("", "")
        assert [unquote(each) for each in found.path.split("/")[1:]] == segments


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_one_value_of_a_query(name: str) -> None:
    address = with_query("/tools", category=name, page=2, q="")
    assert parse_qsl(urlsplit(address).query) == [("category", name), ("page", "2")]


def test_a_query_without_values_is_none() -> None:
    assert with_query("/tools", q="") == "/tools"


def test_an_id_has_no_blanks_and_is_no_others() -> None:
    ids = [element_id("tool", *each) for each in (("a b", "c"), ("a", "b c"), ("a", "b/c"), ("a/b", "c"))]
    assert len({*ids}) == len(ids)
    assert not any(each.split() != [each] for each in ids)
