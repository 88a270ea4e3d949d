"""Files of variables are read as systemd reads them, and changed without losing a line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.config.expand import read_env, with_variable
from tests.unit.cases import cases


@cases("text", "found")
def test_a_file_is_read_as_systemd_reads_it(text: str, found: dict[str, str]) -> None:
    assert read_env(text) == found


@cases("text", "message")
def test_a_line_that_is_none_is_named_without_what_it_holds(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        read_env(text)


def test_a_variable_is_replaced_where_it_stands_and_else_added() -> None:
    text = "# mine\nA=1\n\nB='2\n3'\n# end"
    assert with_variable(text, "B", "x y") == '# mine\nA=1\n\nB="x y"\n# end'
    assert with_variable(text, "C", "4") == f"{text}\nC=4\n"


@given(st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"])))
def test_what_was_written_is_read(value: str) -> None:
    once = with_variable("A=1\n", "B", value)
    assert read_env(with_variable(once, "A", "2")) == {"A": "2", "B": value}
