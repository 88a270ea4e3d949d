"""The file of the tokens that mcpd makes: private, whole, and without a value that need not be there."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from daemon.host import private_files
from daemon.host.tokens import (
    FILE,
    MAX_FILE,
    MAX_TOKENS,
    PREFIX,
    Kept,
    TokenFile,
    TokenTrouble,
    as_owner,
    digest,
)
from daemon.safety.redact import HIDDEN, Redactor
from tests.waiting import PATIENCE


@pytest.fixture
def file(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "state")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_without_a_file_nothing_is_kept_and_none_is_made_by_looking(file: TokenFile) -> None:
    assert file.read() == Kept()
    assert not file.directory.exists()


def test_the_token_without_a_name_is_made_once_and_private(file: TokenFile) -> None:
    old = os.umask(0)
    try:
        made = file.ensure_default(1000.0).default
    finally:
        os.umask(old)
    assert made is not None
    assert made.since == 1000.0
    assert made.value.startswith(PREFIX)
    assert len(made.value) == len(PREFIX) + 64
    assert file.ensure_default(2000.0).default == made == file.read().default
    assert [mode(path) for path in (file.path, file.directory)] == [0o600, 0o700]
    assert mode(file.directory / f"{FILE}.lock") == 0o600


def test_a_value_is_never_the_same_and_is_recognised_as_a_secret(file: TokenFile) -> None:
    values = {file.add(name, None, 0.0) for name in ("a", "b", "c")}
    assert len(values) == 3
    assert all(Redactor(())(f"{value} came") == f"{HIDDEN} came" for value in values)


def test_of_a_token_with_a_name_only_the_digest_is_kept(file: TokenFile) -> None:
    value = file.add("ci", ("review", "default"), 1000.0)
    assert value not in file.path.read_text()
    kept = file.read().tokens["ci"]
    assert (kept.sha256, kept.since, kept.profiles) == (digest(value).hex(), 1000.0, ("review", "default"))


def test_a_name_is_given_once_until_it_is_revoked(file: TokenFile) -> None:
    first = file.add("ci", None, 0.0)
    with pytest.raises(TokenTrouble, match="mcpd token revoke ci"):
        file.add("ci", None, 0.0)
    assert file.revoke("ci")
    assert not file.revoke("ci")
    assert file.add("ci", None, 0.0) != first


def test_a_new_token_without_a_name_leaves_the_others(file: TokenFile) -> None:
    file.add("ci", None, 0.0)
    old = file.ensure_default(0.0).default
    file.renew_default(5.0)
    kept = file.read()
    assert kept.default is not None
    assert (kept.default != old, kept.default.since, list(kept.tokens)) == (True, 5.0, ["ci"])


def test_no_value_is_in_a_repr(file: TokenFile) -> None:
    kept = file.ensure_default(0.0)
    assert kept.default is not None
    assert kept.default.value not in repr(kept)


def test_there_are_not_more_than_a_request_can_be_compared_with(file: TokenFile) -> None:
    file.add("last", None, 0.0)
    text = file.path.read_text()
    entry = text[text.index('"last"') : text.rindex("}\n  }")].removeprefix('"last"')
    many = ",".join(f'"t{number}"{entry}}}' for number in range(MAX_TOKENS))
    file.path.write_text(f'{{"tokens": {{{many}}}}}')
    with pytest.raises(TokenTrouble, match=f"there are {MAX_TOKENS} tokens already"):
        file.add("one-more", None, 0.0)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nonsense",
        b"[]",
        b'{"tokens": {"ci": {}}}',
        b'{"tokens": {"ci": {"sha256": "zz", "since": 1}}}',
        b"\xff",
    ],
)
def test_a_damaged_file_is_not_written_over_and_not_quoted(file: TokenFile, content: bytes) -> None:
    file.ensure_default(0.0)
    file.path.write_bytes(content)
    with pytest.raises(TokenTrouble, match=r"is damaged: restore it"):
        file.ensure_default(0.0)
    with pytest.raises(TokenTrouble, match=r"is damaged"):
        file.add("ci", None, 0.0)
    assert file.path.read_bytes() == content


def test_a_file_that_is_no_file_of_tokens_is_not_read_whole(file: TokenFile) -> None:
    file.ensure_default(0.0)
    file.path.write_bytes(b" " * (MAX_FILE + 1))
    with pytest.raises(TokenTrouble, match="larger than 1 MiB"):
        file.read()


def test_a_file_that_others_can_write_lets_nobody_in(file: TokenFile) -> None:
    file.ensure_default(0.0)
    file.path.chmod(0o620)
    with pytest.raises(TokenTrouble, match="chmod 600"):
        file.read()


def test_neither_a_link_nor_a_pipe_is_followed(file: TokenFile, tmp_path: Path) -> None:
    file.ensure_default(0.0)
    file.path.rename(tmp_path / "elsewhere")
    file.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TokenTrouble, match="cannot be read"):
        file.read()
    file.path.unlink()
    os.mkfifo(file.path, 0o600)
    with pytest.raises(TokenTrouble, match="is no file"):
        file.read()


def test_a_state_directory_that_others_can_write_is_not_used(file: TokenFile) -> None:
    file.directory.mkdir()
    file.directory.chmod(0o777)
    with pytest.raises(TokenTrouble, match="writable by others"):
        file.ensure_default(0.0)


def test_what_several_make_at_once_is_all_kept(file: TokenFile) -> None:
    names = [f"t{number}" for number in range(12)]
    threads = [threading.Thread(target=file.add, args=(name, None, 0.0)) for name in names]
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE)
    assert sorted(file.read().tokens) == sorted(names)


def test_a_rest_of_somebody_who_was_killed_is_no_obstacle(file: TokenFile) -> None:
    file.ensure_default(0.0)
    (file.directory / f"{FILE}.new").write_text("half")
    file.add("ci", None, 0.0)
    assert list(file.read().tokens) == ["ci"]


def test_nobody_waits_for_ever_for_one_who_holds_the_lock(tmp_path: Path) -> None:
    file = TokenFile(tmp_path, patience=0.0)
    with private_files.locked(file.path, 0.0), pytest.raises(TokenTrouble, match="has been changing"):
        file.add("ci", None, 0.0)


@pytest.mark.parametrize("value", ["", "ü", "\udcff", "\ud800" * 3, "x" * 100_000])
def test_whatever_is_shown_has_a_digest(value: str) -> None:
    assert len(digest(value)) == 32


def test_root_leaves_what_the_daemon_of_another_user_can_read(tmp_path: Path) -> None:
    owner = 64_322 if os.geteuid() == 0 else os.geteuid()
    # As systemd keeps those of its dynamic users: nobody but root comes in from above.
    state = tmp_path / "private" / "mcpd"
    state.mkdir(parents=True)
    state.parent.chmod(0o700)
    os.chown(state, owner, -1)
    before = Path.cwd(), os.geteuid()
    with as_owner(state) as file:
        made = file.ensure_default(1.0)
        file.add("ci", None, 1.0)
        with pytest.raises(TokenTrouble, match="already"):
            file.add("ci", None, 1.0)
    assert {path.stat().st_uid for path in state.iterdir()} == {owner}
    assert (Path.cwd(), os.geteuid()) == before
    with as_owner(state) as file:
        assert file.read().default == made.default
