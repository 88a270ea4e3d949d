"""Names and URIs are spelt so that each says whose it is wherever it could be doubted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog.naming import SPELLINGS, is_mcpd, mcpd_uri, read_mcpd_uri
from daemon.model import Kind

SERVERS = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,12}", fullmatch=True)
URI_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="{"), min_size=1)


@given(SERVERS, st.one_of(URI_TEXT, URI_TEXT.map(lambda text: f"file:///{text}")))
def test_a_uri_comes_back_from_its_qualified_form(server: str, uri: str) -> None:
    assert read_mcpd_uri(mcpd_uri(server, uri)) == (server, uri)


@given(st.lists(st.tuples(SERVERS, URI_TEXT), unique=True, min_size=2, max_size=5))
def test_no_two_uris_share_a_qualified_form(keys: list[tuple[str, str]]) -> None:
    assert len({mcpd_uri(*key) for key in keys}) == len(keys)


@pytest.mark.parametrize(
    ("value", "own"),
    [
        ("a/b", "file:///a/b"),
        ("a%2Fb", "file:///a%2Fb"),
        ("100%25", "file:///100%25"),
    ],
)
def test_what_a_client_makes_of_a_qualified_template_is_what_the_own_one_would_have_become(
    value: str, own: str
) -> None:
    shown = mcpd_uri("git", "file:///{path}")
    assert shown == "mcpd://git/file:///{path}"
    assert read_mcpd_uri(shown.replace("{path}", value)) == ("git", own)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "mcpd:",
        "mcpd:/git/x",
        "mcpd://",
        "mcpd://git",
        "mcpd://git/",
        "mcpd:///x",
        "mcpd://../x",
        "mcpd://git:80/x",
        "mcpd://user@git/x",
        "mcpd://git/%ff",
        "mcpd://git%2Fx",
        "http://git/x",
    ],
)
def test_a_malformed_form_is_nobody_s(uri: str) -> None:
    assert read_mcpd_uri(uri) is None


def test_scheme_and_server_may_come_in_capitals_and_the_rest_is_as_written() -> None:
    assert read_mcpd_uri("MCPD://Git/file%3A%2F%2F%2FReadMe") == ("git", "file:///ReadMe")
    assert is_mcpd("McpD://x")


@pytest.mark.parametrize(
    ("own", "first"),
    [
        ("file:///x", "file:///x"),
        ("file:///{path}", "file:///{path}"),
        ("{+uri}", "{+uri}"),
        # A relative reference is no URI: clients that read them strictly refuse the whole list.
        ("notes/today", "mcpd://git/notes%2Ftoday"),
        # What begins like ours would be read as another server's.
        ("mcpd://other/x", "mcpd://git/mcpd%3A%2F%2Fother%2Fx"),
        ("MCPD://other/{x}", "mcpd://git/MCPD://other/{x}"),
    ],
)
def test_a_uri_keeps_its_own_spelling_unless_it_is_none_or_reads_as_ours(own: str, first: str) -> None:
    assert next(SPELLINGS[Kind.RESOURCE].ways(("git", own))) == first


def test_a_name_that_reads_as_another_servers_misleads() -> None:
    servers = {"git", "web"}
    assert SPELLINGS[Kind.TOOL].misleads("web__search", "git", servers)
    assert SPELLINGS[Kind.TOOL].misleads("mcp__us__web__search", "git", servers)
    assert not SPELLINGS[Kind.TOOL].misleads("web__search", "web", servers)
    assert not SPELLINGS[Kind.TOOL].misleads("a__b", "git", servers)
