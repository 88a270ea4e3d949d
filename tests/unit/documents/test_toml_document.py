"""TOML documents: what is not changed stays byte for byte, whichever way a table is written."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.documents.toml_document import TomlDocument
from daemon.errors import ConfigError
from tests.unit.cases import rows_of

TIME = {"command": "uvx", "args": ["a", "b"], "env": {"K.x": "v"}}
TRAIL = ("mcp_servers", "time")
PIECES = rows_of(Path(__file__), "pieces")


@given(
    st.sampled_from(["", "# top\n", 'model = "x"\n', "a.b = 1\n\n", "# top\n\nm = 1\n"]),
    st.lists(st.sampled_from(PIECES), unique_by=lambda piece: piece[:20]),
    st.booleans(),
    st.booleans(),
)
def test_what_was_put_and_is_removed_leaves_every_byte_as_it_was(
    top: str, pieces: list[str], is_dos: bool, ends: bool
) -> None:
    text = (top + "".join(pieces)).replace("\n", "\r\n" if is_dos else "\n")
    text = text if ends else text.rstrip("\r\n")
    if not text:
        return
    try:
        document = TomlDocument(text, "x.toml")
    except ConfigError:
        return  # a table that stands before the one that it belongs to
    document.put(TRAIL, TIME)
    document.put((*TRAIL, "enabled"), True)
    document.put((*TRAIL, "env", "B"), "1")
    added = document.text()
    assert [line for line in added.splitlines() if line in text.splitlines()] >= text.splitlines()[:1]
    assert "\n" not in added.replace("\r\n", "") or "\r\n" not in text
    document.remove(TRAIL)
    assert document.text() == text


@pytest.mark.parametrize(
    "text",
    [
        "m = 1\n\n# about a\n[s.a]\nx = 1\n# y = 2\n\n[s.a.env]\nK = 'v'\n\n# about b\n[s.b]\nx = 2\n",
        "m = 1\n\n# about a\n[s.a]\nx = 1\n\n# about b\n[s.b]\nx = 2\n\n[s.a.env]\nK = 'v'\n",
    ],
)
def test_a_table_takes_its_own_comments_along_and_no_other_table(text: str) -> None:
    document = TomlDocument(text, "x.toml")
    document.remove(("s", "a"))
    assert document.text() == "m = 1\n\n# about b\n[s.b]\nx = 2\n"


def test_what_would_exhaust_the_reader_is_a_fault() -> None:
    for text in (f"a = {'[' * 5000}{']' * 5000}", ".".join("a" * 200) + " = 1", f"a = {'9' * 5000}"):
        with pytest.raises(ConfigError, match=r"nested deeper than|cannot be read"):
            TomlDocument(text, "x.toml")


def test_a_fault_has_its_place_and_nothing_of_the_line() -> None:
    for text in ('a = 1\ntoken = "secret\n', 'a = 1\ntoken = """secret'):
        with pytest.raises(ConfigError) as caught:
            TomlDocument(text, "x.toml")
        assert caught.value.faults[0].line == 2
        assert "secret" not in str(caught.value)
