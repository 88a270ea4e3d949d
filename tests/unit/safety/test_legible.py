"""What a server hides in a definition is spelt out where it is shown, and said; what it has said is kept."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from daemon.catalog.listing import read_definitions
from daemon.catalog.offer import Offered
from daemon.facts import Fact
from daemon.model import Kind, Tool
from daemon.safety.escape import HIDDEN, SELECTORS, hidden_in
from daemon.safety.legible import NOTE, UNREADABLE, ScreenedList, legible_json, legible_tool, screened
from tests.unit.cases import cases, rows_of
from tests.unit.catalog.samples import after, catalog_of, listed, recalled, servers, status, tool, tool_json

LAYOUT = {0x09, 0x0A}
EVERY = [
    point
    for first, last in (*HIDDEN, SELECTORS)
    # Of the large blocks the ends: tags, private use.
    for point in ({first, last, (first + last) // 2} if last - first > 300 else range(first, last + 1))
    if point not in LAYOUT and not 0xD800 <= point <= 0xDFFF
]


def spellings(point: int) -> list[bytes]:
    """The ways in which JSON can hold a character."""
    text = f"a{chr(point)}b"
    units = chr(point).encode("utf-16-be")
    capitals = "".join(f"\\u{units[at : at + 2].hex().upper()}" for at in range(0, len(units), 2))
    return [msgspec.json.encode(text), json.dumps(text).encode(), f'"a{capitals}b"'.encode()]


def test_a_hidden_character_is_found_however_json_spells_it() -> None:
    for point in EVERY:
        for spelt in spellings(point):
            text = msgspec.json.decode(legible_json(b'{"k":%b}' % spelt))["k"]
            assert text == f"a\\u{{{point:x}}}b", spelt


@cases("raw", raw={"raw"})
def test_what_hides_nothing_is_the_same_object(raw: bytes) -> None:
    assert legible_json(raw) is raw


def test_all_but_the_strings_stays_byte_for_byte_and_a_string_that_is_no_text_is_not_shown() -> None:
    raw = b'{ "n" : 1.50, "big":123456789012345678901234567890, "x\\u200b": ["\\u0041\\u202e"], "n":2 }'
    shown = legible_json(raw)
    assert shown == (
        b'{ "n" : 1.50, "big":123456789012345678901234567890, "x\\\\u{200b}": ["A\\\\u{202e}"], "n":2 }'
    )
    assert legible_json(b'["\\ud800"]') == b"[%b]" % UNREADABLE


def strings_of(value: object) -> list[str]:
    """All strings within a value, keys as well."""
    match value:
        case str():
            return [value]
        case list():
            return [text for each in value for text in strings_of(each)]
        case dict():
            return [text for pair in value.items() for each in pair for text in strings_of(each)]
    return []


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.recursive(
    TEXTS | st.integers() | st.none(), lambda v: st.lists(v, max_size=3) | st.dictionaries(TEXTS, v, max_size=3)
)


@settings(deadline=None)
@given(VALUES, st.booleans())
def test_whatever_the_json_nothing_in_it_is_hidden_after(value: Any, ascii_only: bool) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_only).encode()
    shown = legible_json(raw)
    assert not any(hidden_in(text) for text in strings_of(json.loads(shown)))
    assert strings_of(value) != strings_of(json.loads(shown)) or shown == raw
    assert legible_json(shown) == shown


PLACES = dict(rows_of(Path(__file__), "places"))


@pytest.mark.parametrize("place", PLACES)
def test_it_is_known_which_tools_hide_something_wherever_it_stands(place: str) -> None:
    hiding, plain = tool("s", "hiding", **PLACES[place]), tool("s", "plain", description="größer")
    looked = screened([hiding, plain])
    assert list(looked.usable) == ["hiding", "plain"]
    assert list(looked.hidden) == ["hiding"]
    assert "hidden character" in looked.hidden["hiding"]
    assert "U+" in looked.hidden["hiding"]
    assert looked.usable["plain"] is plain


def test_what_the_server_has_said_is_kept_and_its_description_says_that_something_was_hidden() -> None:
    said = tool("s", "read", description="Reads.\u202e", inputSchema={"type": "object", "x": "\u200b"})
    shown = screened([said]).usable["read"]
    assert isinstance(shown, Tool)
    assert (shown.raw, shown.parts, shown.schema_hash) == (said.raw, said.parts, said.schema_hash)
    assert shown.description == f"Reads.\\u{{202e}}\n{NOTE}"
    assert screened([shown]).usable["read"].raw == said.raw
    alone = screened([tool("s", "read", title="\u202e")]).usable["read"]
    assert isinstance(alone, Tool)
    assert alone.description == NOTE


def test_the_characters_are_counted_and_a_few_of_them_named() -> None:
    assert screened([tool("s", "t", title="\u202ex\u202e")]).hidden["t"] == "2 hidden characters: U+202E"
    many = "".join(chr(0xE0041 + each) for each in range(20))
    said = screened([tool("s", "t", description=many)]).hidden["t"]
    assert said.startswith("20 hidden characters: U+E0041, ")
    assert said.endswith(" and 12 others")


@pytest.mark.parametrize("name", ["a\ufe0fb", "a\u034fb", "\u3164", "a\U000e0100"], ids=ascii)
def test_a_name_with_hidden_characters_is_refused_and_shown_spelt_out(name: str) -> None:
    tools, quarantined = read_definitions(Kind.TOOL, "s", [Raw(tool_json(name)), Raw(tool_json("plain"))])
    assert not quarantined, "these pass for printable"
    looked = screened(tools)
    assert list(looked.usable) == ["plain"]
    ((shown, why),) = looked.refused.items()
    assert shown.isascii()
    assert why.startswith("its name has hidden characters: 1 hidden character: U+")


CONFIG = {"mcpServers": servers("git")}
SLY = tool("git", "log", description="Logs.\u202e")


def test_a_list_is_looked_through_when_it_enters_the_catalog_or_is_remembered() -> None:
    bad = read_definitions(Kind.TOOL, "git", [Raw(tool_json("a\ufe0fb"))])[0][0]
    facts: list[Fact] = [status("git"), listed("git", SLY, "add", bad)]
    catalog = after(catalog_of(CONFIG), facts)
    found = catalog.servers["git"].tool_list
    assert (found.hidden, list(found.quarantined)) == ({"log": "1 hidden character: U+202E"}, ["a\\ufe0fb"])
    assert list(catalog.servers["git"].tools or ()) == ["log", "add"]
    assert after(catalog, facts) is catalog, "the same list again is no change"
    entry = after(catalog, [listed("git", "log")]).servers["git"]
    assert (entry.tool_list.hidden, entry.epoch) == ({}, 2)
    catalog = after(catalog_of(CONFIG), [recalled("git", SLY, epoch=3)])
    assert list(catalog.servers["git"].tool_list.hidden) == ["log"]


def test_a_list_of_ours_shows_a_tool_spelt_out_and_one_that_hides_nothing_as_it_is() -> None:
    looked = screened([SLY, tool("git", "add", x=1.5)])
    sly, plain = [
        Offered(tool=each, name=each.name, category=None, description=each.description)
        for each in looked.usable.values()
        if isinstance(each, Tool)
    ]
    assert legible_tool(plain.listed(), plain.description) is plain.tool.raw
    renamed = plain.listed("git__add")
    assert legible_tool(renamed, plain.description) is renamed
    for name in (None, "git__log"):
        shown = msgspec.json.decode(legible_tool(sly.listed(name), sly.description))
        assert shown["name"] == (name or "log")
        assert shown["description"] == f"Logs.\\u{{202e}}\n{NOTE}"
    assert sly.listed() == SLY.raw
    # What somebody else says of it is shown.
    shown = msgspec.json.decode(legible_tool(sly.listed(), "Shows the history."))
    assert shown["description"] == "Shows the history."


def test_a_list_that_was_looked_through_is_not_looked_through_again() -> None:
    tools = ScreenedList.of([SLY, tool("git", "add")])
    assert screened(tools) is tools.screened
    assert screened(tools) == screened(tuple(tools))
    assert list(tools) == [SLY, tool("git", "add")]


@cache
def hidden_points() -> list[int]:
    return list(map(ord, hidden_in("x".join(map(chr, range(0x110000))))))


def test_of_all_code_points_the_bytes_are_suspect_wherever_the_text_hides_something() -> None:
    """The two screens are tables of their own: one that knows less lets pass what the other would spell out."""
    hidden = hidden_points()
    assert len(hidden) > 140_000
    lone = [b'"\\u%04x"' % point for point in hidden if 0xD800 <= point < 0xE000]
    # Of the private planes, half of all, every 512th: they are found by their first byte.
    others = [
        point for point in hidden if not 0xD800 <= point < 0xE000 and (point < 0xF0000 or not point % 512)
    ]
    spelt = [raw for point in others for raw in spellings(point)]
    assert not [raw for raw in (*lone, *spelt) if legible_json(raw) == raw]


def test_of_all_code_points_what_hides_nothing_stays_byte_for_byte() -> None:
    shown = set(range(0x20, 0x110000)) - set(hidden_points()) - set(b'"\\')
    text = "".join(map(chr, sorted(shown)))
    plain = f'"{text}"'.encode()
    assert legible_json(plain) == plain
