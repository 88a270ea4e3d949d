"""The file of the tokens that mcpd makes: private, whole, and without a value that need not be there."""

import json
import os
import stat
from pathlib import Path

import pytest

from daemon.host.tokens import MAX_FILE, Kept, KeptToken, TokenFile, TokenTrouble, digest, new_value
from daemon.safety.redact import HIDDEN, Redactor
from tests.unit.cases import cases

KEPT = Kept(
    default=KeptToken(sha256="0" * 64, since=1.0),
    tokens={"ci": KeptToken(sha256="1" * 64, since=2.0, profiles=("review", "default"), workspaces=("/a/*",))},
)


@pytest.fixture
def file(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "state")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_written_is_private_and_read_again_and_no_file_is_made_by_looking(file: TokenFile) -> None:
    assert file.read() == Kept()
    assert not file.directory.exists()
    old = os.umask(0)
    try:
        file.write(KEPT)
    finally:
        os.umask(old)
    assert file.read() == KEPT
    assert [mode(path) for path in (file.path, file.directory)] == [0o600, 0o700]


def test_a_value_is_never_the_same_and_is_recognised_as_a_secret() -> None:
    values = {new_value() for _ in range(3)}
    assert len(values) == 3
    assert all(Redactor(())(f"{value} came") == f"{HIDDEN} came" for value in values)


def test_the_value_in_a_file_of_before_becomes_its_digest(file: TokenFile) -> None:
    file.write(KEPT)
    before = json.loads(file.path.read_text())
    before["default"] = {"value": "mcpd_0", "since": 5.0}
    file.path.write_text(json.dumps(before))
    made = KeptToken(sha256=digest("mcpd_0").hex(), since=5.0)
    assert file.read() == Kept(default=made, tokens=KEPT.tokens)


@cases("content", raw={"content"})
def test_a_damaged_file_is_not_quoted(file: TokenFile, content: bytes) -> None:
    file.write(KEPT)
    file.path.write_bytes(content)
    with pytest.raises(TokenTrouble, match=r"is damaged: restore the file"):
        file.read()


def test_no_file_is_written_that_would_be_too_large_to_read_and_none_is_read_whole(file: TokenFile) -> None:
    file.write(KEPT)
    wide = KeptToken(sha256="2" * 64, since=3.0, workspaces=("/" + "x" * MAX_FILE,))
    with pytest.raises(TokenTrouble, match="name fewer workspaces"):
        file.write(Kept(tokens={"ci": wide}))
    assert file.read() == KEPT
    file.path.write_bytes(b" " * (MAX_FILE + 1))
    with pytest.raises(TokenTrouble, match="larger than 1 MiB"):
        file.read()


def test_a_file_that_others_can_write_lets_nobody_in(file: TokenFile) -> None:
    file.write(KEPT)
    file.path.chmod(0o644)
    assert file.read() == KEPT
    file.path.chmod(0o620)
    with pytest.raises(TokenTrouble, match="chmod 600"):
        file.read()


def test_neither_a_link_nor_a_pipe_is_followed(file: TokenFile, tmp_path: Path) -> None:
    file.write(KEPT)
    file.path.rename(tmp_path / "elsewhere")
    file.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TokenTrouble, match="cannot be read"):
        file.read()
    file.path.unlink()
    os.mkfifo(file.path, 0o600)
    with pytest.raises(TokenTrouble, match="is a link, or not"):
        file.read()


def test_a_state_directory_that_others_can_write_is_not_used(file: TokenFile) -> None:
    file.directory.mkdir()
    file.directory.chmod(0o777)
    with pytest.raises(TokenTrouble, match="writable by others"):
        file.write(KEPT)


def test_whatever_is_shown_has_a_digest() -> None:
    shown = ("", "ü", "\udcff", "\ud800" * 3, "x" * 100_000)
    assert {len(digest(value)) for value in shown} == {32}
