"""References are looked up, what they stand for stays out of faults, and files of variables lose no line."""

import json
import os
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog.definitions import fingerprint
from daemon.config.config_model import WORKSPACE
from daemon.config.expand import MAX_FILE, References, Sources, read_env, read_file, with_variable
from daemon.config.lock_file import identity_of
from daemon.config.parse import load_with_notes, plan
from daemon.config.redaction import MAX_OF_RUN, RUNS, Redactors, secrets, secrets_of
from daemon.errors import ConfigError, Fault
from daemon.safety.redact import HIDDEN
from tests.unit.cases import cases
from tests.unit.config.reading import config_of, faults_in, server_of

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


OP = "${run:op read 'op://Dev vault/item/k9Q2z3aBx7Lw1fR4'}"
ELSEWHERE = "only args, env, headers, url and auth.clientSecret of a server hold ${run:...} and ${keyring:...}"


@cases("entry")
def test_a_late_reference_stays_as_its_author_wrote_it(entry: dict[str, Any]) -> None:
    server = server_of(entry)
    assert server.late == ("run:op read 'op://Dev vault/item/k9Q2z3aBx7Lw1fR4'",)
    texts = [repr(attrs.asdict(each)) for each in (server, server.written)]
    assert [OP in repr(text) or OP in text for text in texts] == [False, True]
    assert server.written.late == ()


def test_each_reference_of_an_entry_is_looked_up_once() -> None:
    env = {"A": "${keyring:gh}", "B": f"{OP}{OP}", "C": "x ${keyring:gh}"}
    assert server_of({"command": "x", "env": env}).late == ("keyring:gh", OP[2:-1])


@cases("place", "config")
def test_a_reference_elsewhere_is_a_fault(place: str, config: dict[str, Any]) -> None:
    assert (place, ELSEWHERE) in faults_in(config)


@cases("reference", "says")
def test_a_malformed_reference_is_a_fault(reference: str, says: str) -> None:
    [(place, message)] = faults_in({"mcpServers": {"s": {"command": "x", "env": {"A": reference}}}})
    assert place == "$.mcpServers.s.env.A"
    assert says in message


@cases("entry")
def test_the_host_of_a_url_is_no_secret(entry: dict[str, Any]) -> None:
    [(place, message)] = faults_in({"mcpServers": {"s": entry}})
    assert (place, "after the host" in message) == ("$.mcpServers.s.url", True)


def test_text_that_only_looks_like_such_a_reference_is_none_nor_is_that_of_a_server_that_is_off() -> None:
    for text in ("$${run:x}", "${run:-x}", "${keyring:-x}", "${:-$}{run:x}"):
        server = server_of({"command": "x", "env": {"A": text}})
        assert (server.late, "\0" in server.env["A"]) == ((), False), text
    assert server_of({"command": "x", "env": {"A": OP}, "enabled": False}).late == ()


def test_what_no_user_wrote_into_a_server_is_text(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("${run:touch file}")
    (tmp_path / "vars").write_text("FROM_FILE='${run:touch file}'\n")
    (tmp_path / "env").write_text("KEPT='${keyring:a}'\n")
    (tmp_path / "env").chmod(0o600)
    (tmp_path / "profiles.d").mkdir()
    profile = {"instructions": "${run:touch file}", "prompt": "${keyring:a}"}
    (tmp_path / "profiles.d" / "p.json").write_text(json.dumps(profile))
    env = {"A": "${file:token}", "B": "${KEPT}", "C": "${OUTSIDE}"}
    entry = {"command": "x", "env": env, "envFile": "vars"}
    path = tmp_path / "mcpd.json"
    path.write_text(json.dumps({"mcpServers": {"s": entry}}))
    path.chmod(0o600)
    read = load_with_notes(path, {"OUTSIDE": "${run:touch file}", "HOME": str(tmp_path)})
    server = read.config.mcp_servers["s"]
    assert server.late == ()
    assert server.env["A"] == server.env["C"] == server.env["FROM_FILE"] == "${run:touch file}"
    assert server.env["B"] == "${keyring:a}"
    assert read.config.profiles["p"].instructions == "${run:touch file}"
    assert read.notes == ()


def test_a_file_of_variables_makes_no_reference_by_a_mark(tmp_path: Path) -> None:
    (tmp_path / "vars").write_text("A=\0run:touch file\0\n")
    path = tmp_path / "mcpd.json"
    path.write_text(json.dumps({"mcpServers": {"s": {"command": "x", "envFile": "vars"}}}))
    with pytest.raises(ConfigError, match="vars: it holds a NUL"):
        load_with_notes(path, {})


def test_a_check_names_the_commands_with_their_places(tmp_path: Path) -> None:
    path = tmp_path / "mcpd.json"
    servers = {"s": {"command": "x", "env": {"A": OP, "B": "${keyring:b}"}}, "t": {"command": "x"}}
    path.write_text(json.dumps({"mcpServers": servers}))
    path.chmod(0o600)
    [note] = load_with_notes(path, {}).notes
    assert (note.path, note.line) == ("$.mcpServers.s", 1)
    assert note.message == f"`{OP[6:-1]}` runs each time that the server starts, and not now"


def test_a_reload_restarts_a_server_whose_reference_has_changed_and_no_other() -> None:
    def of(one: str, other: str) -> Any:
        entries = {"a": {"command": "x", "env": {"A": one}}, "b": {"command": "x", "args": [other]}}
        return config_of({"mcpServers": entries})

    made = plan(of(OP, OP), of(OP, "${run:op read another}"))
    assert (made.kept, made.restarted) == (("a",), ("b",))


def test_the_identity_of_a_server_is_that_of_the_reference_as_written() -> None:
    entry = {"command": "x", "args": [OP]}
    server = server_of(entry)
    assert server.identity == identity_of(entry)
    assert fingerprint(server) == fingerprint(server_of(entry))
    assert fingerprint(server) != fingerprint(server_of({"command": "x", "args": ["${run:other}"]}))


def test_a_header_with_such_a_reference_is_a_configured_token() -> None:
    url = "https://h.example/mcp"
    assert server_of({"url": url, "headers": {"Authorization": f"Bearer {OP}"}}).login is None
    # A login is kept for one url.
    assert server_of({"url": f"{url}?key={OP}"}).login is None
    assert server_of({"url": url, "headers": {"X-Key": OP}}).login is not None


def test_a_reference_is_no_secret() -> None:
    entry = {"command": "x", "args": ["--token", OP], "env": {"TOKEN": OP, "A": f"p4Q7xx {OP}"}}
    remote = {"url": f"https://h.example/?key={OP}", "headers": {"Authorization": f"Bearer {OP}"}}
    config = config_of({"mcpServers": {"s": entry, "r": remote}})
    redact = Redactors()
    redact.learn(config)
    assert not [each for each in secrets(config) if "\0" not in each and each in OP]
    said = f"`{OP[6:-1]}` failed"
    assert redact(said) == redact.of("s")(said) == redact.of("r")(said) == said


def test_the_secrets_of_the_latest_runs_are_hidden_and_a_common_word_only_in_its_server() -> None:
    redact = Redactors()
    values = [f"value-{number:04}-7fK2mQ9x" for number in range(20)]
    for each in values:
        entry = {"command": "x", "env": {"TOKEN": each, "WORD": "postgres", "PASSWORD": "sesame"}}
        redact.hide_run("s", *secrets_of(server_of(entry)))
    assert [redact(each) for each in values[-RUNS:]] == [HIDDEN] * RUNS
    assert redact.of("other")(values[-1]) == HIDDEN
    assert redact(values[0]) == values[0]
    assert redact("sesame") == "sesame"
    assert redact.of("s")("sesame") == HIDDEN


def test_of_very_many_secrets_the_longest_are_hidden() -> None:
    redact = Redactors()
    lines = "\n".join(f"7fK2mQ9xVb-{number}" for number in range(5 * MAX_OF_RUN))
    redact.hide_run("s", *secrets_of(server_of({"command": "x", "env": {"TOKEN": lines}})))
    assert redact(f"a {lines} b") == f"a {HIDDEN} b"
    assert len(list(redact.of("s").known(certain=False))) < 20 * MAX_OF_RUN
