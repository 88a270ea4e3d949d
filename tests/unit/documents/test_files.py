"""Files that others write, too: replaced in one step, with mode and links kept, or not at all."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from daemon.documents.files import BACKUPS, MAX_FILE, DocumentError, keep_backup, look, replace, unified_diff


def test_a_file_is_replaced_with_its_mode_and_through_the_links_that_lead_to_it(tmp_path: Path) -> None:
    target, link = tmp_path / "dotfiles.json", tmp_path / "link.json"
    target.write_bytes(b"old")
    target.chmod(0o640)
    os.utime(target, (1, 1))
    link.symlink_to("dotfiles.json")
    replace(look(link), b"new" * 10_000)
    assert link.is_symlink()
    assert target.read_bytes() == b"new" * 10_000
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert target.stat().st_mtime > 1, "editors look at the time"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["dotfiles.json", "link.json"]


@pytest.mark.parametrize(("private", "mode"), [(True, 0o600), (False, 0o666)])
def test_a_new_file_and_its_directories_are_private_where_they_hold_secrets(
    private: bool, mode: int, tmp_path: Path
) -> None:
    mask = os.umask(0)
    try:
        replace(look(tmp_path / "a" / "env"), b"K=V", private=private)
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "a" / "env").stat().st_mode) == mode
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == (0o700 if private else 0o777)


@pytest.mark.parametrize("at", ["before", "without a file", "at the last moment"])
def test_what_somebody_else_has_written_meanwhile_is_not_lost(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, link = tmp_path / "x.json", os.link

    def late(*names: Any, **more: Any) -> None:
        path.write_bytes(b"theirs")
        link(*names, **more)

    if at == "before":
        path.write_bytes(b"old")
    found = look(path)
    if at == "at the last moment":
        monkeypatch.setattr(os, "link", late)
    else:
        path.write_bytes(b"theirs")
    with pytest.raises(DocumentError, match=r"written by somebody else at this moment.*try again"):
        replace(found, b"ours")
    assert path.read_bytes() == b"theirs"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_configuration_is_refused_with_its_reason(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", MAX_FILE + 1)
    reasons = [("", "is a directory"), ("pipe", "is not a regular file"), ("circle", "link")]
    for name, reason in [*reasons, ("huge", "more than 32 MiB")]:
        with pytest.raises(DocumentError, match=reason):
            look(tmp_path / name)


def test_a_read_only_file_stays_as_it_is_and_a_directory_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"old")
    path.chmod(0o400)
    with pytest.raises(DocumentError, match="read-only: make it writable"):
        replace(look(path), b"new")
    assert path.read_bytes() == b"old"
    with pytest.raises(DocumentError, match=r"y\.json cannot be (read|written): Not a directory"):
        replace(look(path / "y.json"), b"new")


def test_another_users_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"theirs")
    monkeypatch.setattr(os, "geteuid", lambda: 64_322)
    with pytest.raises(DocumentError, match=rf"another user \(uid {path.stat().st_uid}\)"):
        look(path)


def test_root_leaves_a_file_to_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"theirs")
    owner = 65534 if os.geteuid() == 0 else os.geteuid()
    os.chown(path, owner, -1)
    replace(look(path), b"changed")
    assert path.stat().st_uid == owner


def test_the_newest_backups_are_kept_each_with_the_files_mode(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "x.json.mine").touch()
    copies = []
    for number in range(BACKUPS + 2):
        path.write_bytes(b"%d" % number)
        path.chmod(0o640)
        copies.append(keep_backup(look(path), tmp_path / "kept"))
    left = sorted((tmp_path / "kept").glob("x.json.2*"))
    assert left == copies[2:]
    assert [int(copy.read_bytes()) for copy in left] == [*range(2, BACKUPS + 2)]
    assert stat.S_IMODE(left[0].stat().st_mode) == 0o640
    assert (tmp_path / "kept" / "x.json.mine").exists()
    with pytest.raises(DocumentError, match="does not exist"):
        keep_backup(look(tmp_path / "none"), tmp_path / "kept")


def test_a_diff_says_where_there_was_no_file_or_is_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert unified_diff(path, "a\nb\n", "a\nc\n", context=0).splitlines() == [
        f"--- {path}", f"+++ {path}", "@@ -2 +2 @@", "-b", "+c",
    ]  # fmt: skip
    assert unified_diff(path, None, "a").startswith(f"--- /dev/null\n+++ {path}\n")
    assert unified_diff(path, "a", None).startswith(f"--- {path}\n+++ /dev/null\n")
    assert unified_diff(path, None, "") == ""


def test_the_text_of_a_file_is_utf_8_or_refused(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    assert look(tmp_path / "none").text() is None
    with pytest.raises(DocumentError, match="save it as UTF-8"):
        look(tmp_path / "latin").text()
