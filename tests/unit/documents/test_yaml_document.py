"""YAML documents: what is not changed stays byte for byte, indentation and quotes of others included."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.documents import yaml_document
from daemon.documents.yaml_document import YamlDocument, writing_of
from daemon.errors import ConfigError
from tests.unit.cases import cases, rows_of

TIME = {"command": "uvx", "args": ["a", "--b"], "env": {"K": "v"}, "text": "two\nlines"}
TRAIL = ("extensions", "time")
MEMBERS = rows_of(Path(__file__), "members")
AROUND = ["", "# about more\nmore: 1\n", "\n\nGOOSE: x\nlist:\n- a\n- b\n", "---\nfirst: 0\n"]


@given(
    st.sampled_from(AROUND),
    st.lists(st.sampled_from(MEMBERS), unique=True, min_size=1),
    st.sampled_from(AROUND[:3]),
    st.booleans(),
    st.booleans(),
)
def test_what_was_put_and_is_removed_leaves_every_byte_as_it_was(
    above: str, members: list[str], below: str, is_dos: bool, ends: bool
) -> None:
    below = below.replace("more", "other").replace("list", "items") if above in AROUND[:3] else below
    text = f"{above}extensions:\n{''.join(members)}{below.replace('GOOSE', 'OTHER')}"
    # Without a line behind it, the text of `c` would be another one.
    text = (text if ends or text.endswith(MEMBERS[2]) else text.rstrip("\n")).replace(
        "\n", "\r\n" if is_dos else "\n"
    )
    document = YamlDocument(text, "x.yaml")
    document.put(TRAIL, TIME)
    document.put((*TRAIL, "enabled"), True)
    document.put((*TRAIL, "env", "B"), "1")
    assert "\n" not in document.text().replace("\r\n", "") or not is_dos
    document.remove(TRAIL)
    assert document.text() == text


@pytest.mark.parametrize(
    "text", ["servers:\n  - name: a\n    x: 1\n  # c\n  - name: b\nz: 1\n", "servers:\n- name: a\n"]
)
def test_items_are_appended_and_removed(text: str) -> None:
    document = YamlDocument(text, "x.yaml")
    document.put(("servers", text.count("name")), {"name": "time", "args": ["x"]})
    document.remove(("servers", text.count("name")))
    assert document.text() == text
    document.remove(("servers", 0))
    assert "name: a" not in document.text()


def test_a_member_takes_its_own_comments_along_and_leaves_an_empty_object() -> None:
    document = YamlDocument("# top\n\ns:  # c\n  # about a\n  a: 1 # behind\n# about b\nb: 2\n", "x.yaml")
    document.remove(("s", "a"))
    assert document.text() == "# top\n\ns: {}  # c\n# about b\nb: 2\n"
    document.remove(("b",))
    assert document.text() == "# top\n\ns: {}  # c\n"


@cases("text")
def test_what_is_no_yaml_is_a_fault_that_quotes_nothing(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_document, "MAX_VALUES", 10_000)
    with pytest.raises(ConfigError) as caught:
        YamlDocument(text, "x.yaml")
    assert "secret" not in str(caught.value)


@cases("text", "lines")
def test_a_member_is_indented_as_the_file_is(text: str, lines: str) -> None:
    assert writing_of(text, "\n").lines("a", {"b": [1, {"x": 2}]}, 0) == lines


def test_within_braces_it_stands_on_one_line() -> None:
    assert writing_of("", "\r\n").flow("a", {"b": ["x" * 200, None]}) == f"a: {{b: [{'x' * 200}, null]}}"
