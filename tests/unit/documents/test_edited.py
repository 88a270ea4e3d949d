"""What the formats share: marks and line ends, and that nothing is changed by halves."""

from __future__ import annotations

import pytest

from daemon.documents.edited import spelt
from daemon.documents.files import DocumentError
from daemon.documents.formats import Format, read_document


def test_a_mark_and_line_ends_are_kept() -> None:
    for form, text in (
        (Format.JSON, '{\r\n "a": {}\r\n}'),
        (Format.TOML, "[a]\r\n"),
        (Format.YAML, "a: {}\r\n"),
    ):
        document = read_document(f"\ufeff{text}", form, source="x")
        document.put(("a", "b"), {"c": 1})
        assert document.text().startswith("\ufeff")
        assert document.text().count("\n") == document.text().count("\r\n") > text.count("\n")


def test_a_change_of_which_a_part_fails_is_not_made() -> None:
    text = '{"a": {"b": 1, "c": 2, "c": 3}}'
    document = read_document(text, Format.JSON, source="x")
    with pytest.raises(DocumentError, match="twice"):
        document.put(("a",), {"b": 2, "c": 4})
    assert document.text() == text


def test_what_is_as_it_should_be_is_not_written_again() -> None:
    text = '{"a" : {"b":1 ,"c": [ ]}}'
    document = read_document(text, Format.JSON, source="x")
    document.put(("a",), {"c": [], "b": 1})
    assert document.text() == text


def test_trails_are_spelt_as_in_faults() -> None:
    assert spelt(("mcpServers", "a b", 1)) == '$.mcpServers["a b"][1]'
