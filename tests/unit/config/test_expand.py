"""References are looked up, what they stand for stays out of faults, and files of variables lose no line."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.config.config_model import WORKSPACE
from daemon.config.expand import MAX_FILE, References, Sources, read_env, read_file, with_variable
from daemon.errors import Fault
from tests.unit.cases import cases

ENVIRON = {"TOKEN": "s3cr3t", "EMPTY": "", "HOME": "/home/ada", "CREDENTIALS_DIRECTORY": "/run/credentials"}
FILES = {
    "/etc/mcpd/key": "  from-a-file\n",
    "/home/ada/key": "from-home",
    "/abs": "absolute",
    "/run/credentials/gh": "credential\n",
}


def read_known(path: Path) -> str:
    if str(path) == "/bytes":
        b"s3cr3t \xff".decode()
    if str(path) not in FILES:
        raise FileNotFoundError(2, "No such file or directory")
    return FILES[str(path)]


SOURCES = Sources(environ=ENVIRON, base=Path("/etc/mcpd"), read_file=read_known)


def resolved(
    text: str, sources: Sources = SOURCES, *, workspaces: bool = False
) -> tuple[str, References, list[str]]:
    faults: list[Fault] = []
    references = References(sources, faults)
    made = references.text(text, "$", workspaces=workspaces)
    return made, references, [each.message for each in faults]


@cases("text", "expanded", "substituted")
def test_a_reference_becomes_what_it_stands_for(text: str, expanded: str, substituted: list[str]) -> None:
    made, references, faults = resolved(text)
    assert (made, references.values, faults) == (expanded, set(substituted), [])


@cases("text", "problem")
def test_a_reference_to_nothing_says_why_and_what_to_do(text: str, problem: str) -> None:
    assert resolved(text)[2] == [problem]


def test_a_nul_from_outside_is_refused_and_a_credential_outside_systemd_names_the_way_to_pass_it() -> None:
    sources = Sources(environ={"X": "a\0b"}, base=Path(), read_file=read_known)
    assert resolved("${X}", sources)[2] == ["the value of ${X} holds a NUL or half a character"]
    (fault,) = resolved("${credential:gh}", sources)[2]
    assert "LoadCredential=gh" in fault


@cases("text", "credentials")
def test_what_a_reference_stands_for_is_a_credential_by_its_kind_its_name_or_its_look(
    text: str, credentials: list[str]
) -> None:
    assert resolved(text)[1].credentials == set(credentials)


@pytest.mark.parametrize("path", ["a\0b", "\0", "a\ud800b"])
def test_a_path_that_no_file_can_have_is_a_fault_of_its_place(path: str) -> None:
    faults: list[Fault] = []
    sources = Sources(environ={}, base=Path("/"), read_file=read_file)
    References(sources, faults).within({"command": "x", "env": {"A": f"${{file:{path}}}"}}, "$.s")
    (fault,) = faults
    assert fault.path == "$.s.env.A"
    assert "holds a NUL or half a character" in fault.message


def test_a_workspace_leaves_a_mark_where_a_process_is_started_and_is_nobody_s_secret() -> None:
    made, references, _ = resolved("${TOKEN}:${workspace}/$${workspace}", workspaces=True)
    assert made == f"s3cr3t:{WORKSPACE}/${{workspace}}"
    assert references.values == references.credentials == {"s3cr3t"}


def test_each_problem_has_the_path_of_its_text() -> None:
    faults: list[Fault] = []
    raw = {
        "command": "${A}",
        "args": ["x", "${B}"],
        "env": {"K": "${C}"},
        "cwd": "${D}",
        "url": "${E}",
        "headers": {"H": "${F}"},
        "description": "${G}",
        "timeouts": {"call": "${H}"},
    }
    References(SOURCES, faults).within(raw, "$.s")
    places = ("command", "args[1]", "env.K", "cwd", "url", "headers.H")
    assert [fault.path for fault in faults] == [f"$.s.{each}" for each in places]


def test_values_of_the_wrong_type_are_left_to_others() -> None:
    faults, raw = list[Fault](), {"command": 3, "args": "${TOKEN}", "env": None}
    assert References(SOURCES, faults).within(raw, "$.s") == {"command": 3, "args": "s3cr3t", "env": None}
    assert faults == []


def test_a_secret_file_is_a_small_regular_file_of_text(tmp_path: Path) -> None:
    good, large, binary, fifo = (tmp_path / name for name in ("good", "large", "binary", "fifo"))
    good.write_text("x" * MAX_FILE)
    large.write_text("x" * (MAX_FILE + 1))
    binary.write_bytes(b"\xff")
    os.mkfifo(fifo)
    assert read_file(good) == "x" * MAX_FILE
    with pytest.raises(OSError, match="larger than 64 KiB"):
        read_file(large)
    with pytest.raises(UnicodeDecodeError):
        read_file(binary)
    with pytest.raises(OSError, match="not a regular file"):
        read_file(fifo)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "gone")


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
