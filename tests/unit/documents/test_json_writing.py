"""New JSON: plain lists stand on one line as long as they fit, all else on lines of its own."""

from __future__ import annotations

from daemon.documents.json_document import WIDTH, JsonWriting

WRITING = JsonWriting(unit="\t", line_end="\r\n")


def test_a_list_that_fits_stands_on_one_line() -> None:
    assert WRITING.member("args", ["a", 1], "") == '"args": ["a", 1]'
    assert WRITING.value(["a" * WIDTH, "é"], "") == f'[\r\n\t"{"a" * WIDTH}",\r\n\t"é"\r\n]'


def test_without_an_indentation_everything_stands_on_one_line() -> None:
    assert WRITING.value({"a": {"b": [{}]}}, None) == '{"a": {"b": [{}]}}'
    assert WRITING.value({"a": [1, 2]}, None, tight=True) == '{"a":[1,2]}'
