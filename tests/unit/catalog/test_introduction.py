"""What is kept of what a server says of itself, however it says that."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from daemon.catalog.introduction import MAX_INTRODUCTION, SHORT_TEXT, introduction_in, read_introduction


def test_what_a_server_writes_is_kept_byte_for_byte() -> None:
    info = b'{"name" : "g\\u00e9", "version":1.50, "icons":[]}'
    said = b'{"capabilities": {"tools":{}}, "serverInfo": %b, "instructions": " x\\n ", "other": 1}' % info
    kept = read_introduction(introduction_in(said, {"name": "gé"}))
    assert kept is not None
    assert kept.info == Raw(info)
    assert kept.capabilities == {"tools": {}}
    assert kept.instructions == " x\n "


def test_the_newer_era_has_the_info_elsewhere() -> None:
    kept = read_introduction(introduction_in(b'{"capabilities":{}}', {"name": "new"}))
    assert kept is not None
    assert kept.info == Raw(b'{"name":"new"}')
    assert kept.instructions is None


@pytest.mark.parametrize(
    "said", [b"", b"[]", b"{", b'{"serverInfo":7,"capabilities":[],"instructions":{}}', b"\xff"]
)
def test_what_is_no_introduction_says_nothing(said: bytes) -> None:
    kept = read_introduction(introduction_in(said, 7))
    assert kept is None or (kept.info, kept.capabilities, kept.instructions) == (None, {}, None)


@pytest.mark.parametrize(
    "kept", [b"", b"x", b"[]", b'{"serverInfo":"x"}', b'{"instructions":7}', b'{"capabilities":7}']
)
def test_what_was_edited_by_hand_breaks_nothing(kept: bytes) -> None:
    read = read_introduction(kept)
    assert read is None or read.info is None


def test_one_that_is_too_long_keeps_its_names_and_the_beginning_of_its_texts() -> None:
    info = {"name": "n" * (SHORT_TEXT + 1), "version": "1", "icons": [{"src": "i" * MAX_INTRODUCTION}]}
    said = msgspec.json.encode({"serverInfo": info, "capabilities": {"tools": {}}, "instructions": "x" * 9999})
    raw = introduction_in(said, info)
    assert len(raw) < MAX_INTRODUCTION
    kept = read_introduction(raw)
    assert kept is not None
    assert kept.info is not None
    assert msgspec.json.decode(kept.info) == {"name": "n" * SHORT_TEXT, "version": "1"}
    assert kept.capabilities == {"tools": {}}
    assert kept.instructions == "x" * SHORT_TEXT


@given(st.binary(max_size=200), st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5)))
def test_nothing_that_a_server_says_breaks_it(said: bytes, info: object) -> None:
    read_introduction(said)
    read_introduction(introduction_in(said, info))
