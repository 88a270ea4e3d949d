"""New YAML: indented as the file is."""

from __future__ import annotations

from daemon.documents.yaml_document import writing_of
from tests.unit.cases import cases


@cases("text", "lines")
def test_a_member_is_indented_as_the_file_is(text: str, lines: str) -> None:
    assert writing_of(text, "\n").lines("a", {"b": [1, {"x": 2}]}, 0) == lines


def test_within_braces_it_stands_on_one_line() -> None:
    assert writing_of("", "\r\n").flow("a", {"b": ["x" * 200, None]}) == f"a: {{b: [{'x' * 200}, null]}}"
