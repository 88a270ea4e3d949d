"""Installing and uninstalling, with the files of all clients."""

from pathlib import Path
from typing import Any

import attrs
import pytest

from daemon.documents import files
from daemon.documents.files import DocumentError, FoundFile
from daemon.errors import ConfigError
from daemon.setup.clients.installing import Installation
from daemon.setup.clients.programs import PROGRAMS
from tests.pairwise import pairwise
from tests.unit.setup.installs import EVERYTHING, MCPD, Installs
from tests.unit.setup.machines import machine, put

WAYS: dict[str, tuple[Any, Installation]] = {
    "all": (EVERYTHING, MCPD),
    "none": ((), MCPD),
    "keep": (EVERYTHING, attrs.evolve(MCPD, keep=True)),
    "one-to-one": (EVERYTHING, attrs.evolve(MCPD, one_to_one=True)),
}


@pytest.mark.parametrize(("client", "scope", "way"), pairwise(PROGRAMS, ["user", "project"], WAYS))
def test_uninstalling_leaves_every_byte_as_it_was(tmp_path: Path, client: str, scope: str, way: str) -> None:
    installs = Installs(machine(tmp_path, client))
    if scope == "project" and not _has_project(installs, client):
        with pytest.raises(DocumentError, match="no file for the scope"):
            installs.install(client, scope=scope)
        return
    before = installs.files()
    known, wanted = WAYS[way]

    changes = installs.install(client, known, wanted, scope)
    after = installs.files()
    again = installs.install(client, known, wanted, scope)

    # One to one there is nothing to do for a client without servers.
    is_idle = wanted.one_to_one and not any(change.new.taken for change in changes)
    assert (after == before) is is_idle
    assert (b"/opt/bin/mcpd" in b"".join(after.values())) is not is_idle
    assert [change.new.taken for change in again] == [change.new.taken for change in changes]
    assert installs.files() == after
    assert not any(change.writes for change in again)

    installs.uninstall(client)
    assert installs.files() == before
    assert not installs.kept()
    assert not any(change.writes for change in installs.uninstall(client))


X = '{\n  "mcpServers": {\n    "x": {"command": "b", "args": ["a"]}\n  }\n}\n'

ODD = {
    "a mark before it": b"\xef\xbb\xbf" + X.encode(),
    "line ends of Windows": X.replace("\n", "\r\n").encode(),
    "two sorts of line ends": X.replace("\n", "\r\n", 2).encode(),
    "no last line end": X.strip().encode(),
    "comments everywhere": (
        b'// a\n{ /*b*/ // c\n "mcpServers" /*d*/ : { // e\n /*f*/ "x" /*g*/: {"command":"b"} /*h*/ , // i\n'
        b" } /*j*/ }"
    ),
    "a key of its own twice": b'{"k": 1, "k": 2, "mcpServers": {"x": {"command": "b"}}}',
    "nothing": b"",
    "blank lines": b" \n\n",
    "null": b"null",
    "null for servers": b'{"mcpServers": null}\n',
    "half a character": b'{"a\\ud800": 1, "mcpServers": {}}\n',
    "a large number": b'{"n": 1' + b"0" * 6000 + b"}\n",
    "no numbers": b'{"n": 1.0e400, "m": -0.0, "o": NaN}\n',
    "two megabytes": b'{"pad": "' + b"a" * 2_000_000 + b'", "mcpServers": {}}\n',
}
REFUSED = {
    "another server called mcpd": (b'{"mcpServers": {"mcpd": {"command": "other"}}}', "rename it there"),
    "its servers twice": (b'{"mcpServers": {}, "mcpServers": {"x": {"command": "b"}}}', "has this key twice"),
    "a list": (b"[]", "is not an object"),
    "a list of servers": (b'{"mcpServers": []}', "is not an object"),
    "another encoding": (X.encode("utf-16"), "not UTF-8"),
}


@pytest.mark.parametrize("held", ODD.values(), ids=ODD)
def test_an_odd_file_is_given_back_byte_for_byte(tmp_path: Path, held: bytes) -> None:
    installs, file = _with_file(tmp_path, held)
    installs.install("cursor")
    assert b"/opt/bin/mcpd" in file.read_bytes()
    installs.uninstall("cursor")
    assert file.read_bytes() == held


@pytest.mark.parametrize(("held", "why"), REFUSED.values(), ids=REFUSED)
def test_what_could_not_be_given_back_is_refused_with_the_reason(tmp_path: Path, held: bytes, why: str) -> None:
    installs, file = _with_file(tmp_path, held)
    with pytest.raises((DocumentError, ConfigError), match=why):
        installs.install("cursor", ())
    assert file.read_bytes() == held
    assert not installs.kept()


def _with_file(at: Path, held: bytes) -> tuple[Installs, Path]:
    installs = Installs(machine(at))
    file = put(installs.machine.home / ".cursor" / "mcp.json", "")
    file.write_bytes(held)
    return installs, file


def _has_project(installs: Installs, client: str) -> bool:
    return any(place.scope in {"project", "workspace"} for place in PROGRAMS[client].places(installs.machine))


@pytest.mark.parametrize("client", PROGRAMS)
def test_a_client_without_any_file_gets_one_that_is_removed_again(tmp_path: Path, client: str) -> None:
    installs = Installs(machine(tmp_path))
    installs.install(client)
    assert len(installs.files()) == 1
    installs.uninstall(client)
    assert installs.files() == {}


def test_if_a_later_file_cannot_be_changed_the_earlier_ones_are_as_they_were(tmp_path: Path) -> None:
    installs = Installs(machine(tmp_path, "vscode"))
    before = installs.files()
    settings = installs.machine.home / ".config" / "Code" / "User" / "settings.json"
    settings.chmod(0o444)

    with pytest.raises(DocumentError, match="read-only"):
        installs.install("vscode")

    assert installs.files() == before
    assert not installs.kept()


def test_a_file_that_is_written_all_the_time_is_left_and_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installs = Installs(machine(tmp_path, "cursor"))
    path = installs.machine.home / ".cursor" / "mcp.json"
    replace = files.replace

    def while_it_writes(found: FoundFile, content: bytes, *, private: bool = False) -> None:
        if found.path == path:
            path.write_text(path.read_text() + " ")
        replace(found, content, private=private)

    monkeypatch.setattr(files, "replace", while_it_writes)
    with pytest.raises(DocumentError, match="somebody else"):
        installs.install("cursor")
    assert "/opt/bin/mcpd" not in path.read_text()
    assert not installs.kept()
