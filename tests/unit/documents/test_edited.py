"""What the formats share: marks and line ends, and that nothing is changed by halves."""

import pytest

from daemon.documents.edited import EditedText, Trail
from daemon.documents.files import DocumentError
from daemon.documents.formats import Format, read_document
from daemon.documents.json_document import JsonDocument
from daemon.errors import ConfigError
from tests.unit.cases import cases


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


@pytest.mark.parametrize("form", list(Format))
def test_every_format_is_read_changed_and_written(form: Format) -> None:
    document = read_document("", form, source="x")
    document.put(("servers", "time"), {"command": "uvx", "args": ["a"], "env": {"K": "V"}})
    again = read_document(document.text(), form, source="x")
    assert again.value() == {"servers": {"time": {"command": "uvx", "args": ["a"], "env": {"K": "V"}}}}
    again.remove(("servers", "time", "env"))
    again.remove(("servers", "none"))
    assert again.value() == {"servers": {"time": {"command": "uvx", "args": ["a"]}}}


@pytest.mark.parametrize("form", list(Format))
def test_what_is_not_of_the_format_is_a_fault_with_its_place(form: Format) -> None:
    with pytest.raises(ConfigError) as caught:
        read_document('a: 1\n]{"', form, source="x")
    assert caught.value.faults[0].line


@cases("form", "before", "trail", "value", "after")
def test_a_new_member_is_written_as_the_file_is(
    form: str, before: str, trail: list[str], value: object, after: str
) -> None:
    document = read_document(before, Format(form), source="x")
    document.put((*trail,), value)
    assert document.text() == after


@cases("form", "text", "trail", "value")
def test_what_cannot_be_changed_is_refused_and_nothing_is_changed(
    form: str, text: str, trail: list[str | int], value: object
) -> None:
    document = read_document(text, Format(form), source=f"x.{form}")
    with pytest.raises(DocumentError, match=rf"x\.{form}: \$"):
        document.put((*trail,), value)
    assert document.text() == text
