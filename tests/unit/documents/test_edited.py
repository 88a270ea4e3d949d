"""What the formats share: marks and line ends, and that nothing is changed by halves."""

import pytest

from daemon.documents.edited import EditedText, Trail, spelt
from daemon.documents.files import DocumentError
from daemon.documents.formats import Format, read_document
from daemon.documents.json_document import JsonDocument


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


def test_changes_made_together_are_checked_once() -> None:
    decoded = []

    class Counting(JsonDocument):
        def decode(self, text: str) -> object:
            decoded.append(text)
            return super().decode(text)

    document = Counting('{"a": {}, // the first\n "b": null, "c": {"d": 1}}', "x")
    with document.together():
        for name in "abc":
            document.put((name, "new"), name)
        document.remove(("c", "d"))
        document.put(("b", "new"), "again")
    wanted = {"a": {"new": "a"}, "b": {"new": "again"}, "c": {"new": "c"}}
    assert document.value() == wanted
    assert "// the first" in document.text()
    assert len(decoded) == 2


def put_together(document: EditedText, *trails: Trail) -> None:
    with document.together():
        for trail in trails:
            document.put(trail, 4)


def test_none_of_the_changes_made_together_is_left_if_one_fails() -> None:
    text = '{"a": {}, "b": {"c": 2, "c": 3}}'
    document = read_document(text, Format.JSON, source="x")
    with pytest.raises(DocumentError, match="twice"):
        put_together(document, ("a", "new"), ("b", "c"))
    assert document.text() == text
    document.put(("a", "new"), 1)
    assert document.value() == {"a": {"new": 1}, "b": {"c": 3}}


def test_changes_made_together_that_do_not_say_what_they_should_are_refused() -> None:
    class Wrong(JsonDocument):
        def with_new(self, trail: Trail, value: object) -> str:
            return super().with_new(trail, 0)

    document = Wrong('{"a": {}}', "x")
    with pytest.raises(DocumentError, match="by hand"):
        put_together(document, ("a", "new"))
    assert document.text() == '{"a": {}}'
