"""A configuration that others can write is not read, by real owners and modes."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from daemon.config.parse import load
from daemon.config.writers import open_to_others
from daemon.errors import ConfigError

FOREIGN = 54_321
"""A group that nobody here is in."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    directory = tmp_path / "above" / "below"
    directory.mkdir(parents=True)
    path = directory / "mcpd.json"
    path.write_text("{}")
    for each in (path, path.parent, path.parent.parent):
        each.chmod(0o700)
    return path


def refused(path: Path) -> str:
    with pytest.raises(ConfigError) as error:
        load(path, {})
    (fault,) = error.value.faults
    return fault.message


@pytest.mark.parametrize("above", [0, 1, 2])
def test_what_every_user_can_write_is_refused_with_the_command_that_mends_it(path: Path, above: int) -> None:
    each = (path, *path.parents)[above]
    each.chmod(0o702)
    message = refused(path)
    assert message.startswith(f"every user of this machine can write {each}, ")
    assert f"`chmod o-w {each}`" in message
    each.chmod(stat.S_IMODE(each.stat().st_mode) & ~stat.S_IWOTH)
    load(path, {})


def test_all_that_is_open_is_named_at_once(path: Path) -> None:
    path.chmod(0o666)
    path.parent.chmod(0o777)
    assert [fault.message.split(",")[0].rpartition(" ")[2] for fault in open_to_others(path)] == [
        str(path),
        str(path.parent),
    ]


def test_a_sticky_directory_is_fine(path: Path) -> None:
    path.parent.chmod(0o1777)
    load(path, {})


def test_the_directory_that_a_link_leads_to_counts_and_so_does_that_of_the_link(path: Path) -> None:
    links = path.parent.parent / "links"
    links.mkdir(mode=0o700)
    link = links / "mcpd.json"
    link.symlink_to(path)
    load(link, {})
    for each in (links, path.parent, path):
        each.chmod(0o703)
        assert f"`chmod o-w {each}`" in refused(link)
        each.chmod(0o700)


def test_every_link_on_the_way_counts_with_its_directory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can replace a link in the middle says which file is read."""
    for name in ("links", "open"):
        (path.parent.parent / name).mkdir(mode=0o700)
    link, middle = path.parent.parent / "links" / "l.json", path.parent.parent / "open" / "cur.json"
    link.symlink_to("../open/cur.json")
    middle.symlink_to(path)
    load(link, {})
    middle.parent.chmod(0o777)
    assert f"`chmod o-w {middle.parent}`" in refused(link)
    through = path.parent.parent / "through"
    through.symlink_to(middle.parent)
    assert f"`chmod o-w {middle.parent}`" in refused(through / "cur.json")
    monkeypatch.chdir(path.parent)
    assert f"`chmod o-w {middle.parent}`" in refused(Path("../links/l.json"))


def test_links_that_lead_nowhere_or_on_and_on_end(path: Path) -> None:
    round_and_round = path.parent / "a"
    round_and_round.symlink_to("b")
    (path.parent / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        open_to_others(round_and_round)
    (path.parent / "c").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError):
        open_to_others(path.parent / "c")


def test_in_a_sticky_directory_only_what_is_ours_or_roots_counts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner can replace it there, or made it first under the name that we were going to use."""

    def said() -> list[str]:
        return [fault.message for fault in open_to_others(path) if f" {path} " in fault.message]

    path.parent.chmod(0o1777)
    assert not said()
    if path.stat().st_uid == 0:
        os.chown(path, FOREIGN, path.stat().st_gid)
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner)
    assert not said()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    (message,) = said()
    assert message.startswith(f"user {owner} owns {path} in a directory that every user can write")
    assert message.endswith("move it to a directory of your own")
    path.parent.chmod(0o700)
    assert not said()


def test_where_modes_are_fixed_another_way_is_named(path: Path) -> None:
    """On a disk of Windows, all files have the mode that it is mounted with."""
    path.chmod(0o777)
    assert "or where modes are fixed (WSL's /mnt/c, vfat) move the configuration" in refused(path)


def test_a_group_may_write_if_it_is_our_own_or_the_owners(path: Path) -> None:
    """Where every user has a group alone, files are made with mode 664."""
    path.chmod(0o664)
    path.parent.chmod(0o2775)
    load(path, {})
    if os.geteuid() == 0:
        os.chown(path, 0, FOREIGN)
        message = refused(path)
        assert message.startswith(f"group {FOREIGN} can write {path}")
        assert f"`chmod g-w {path}`" in message
        os.chown(path, FOREIGN, FOREIGN)
        load(path, {})


def test_what_is_no_file_is_not_ours_to_judge() -> None:
    assert not open_to_others(Path(os.devnull))


def test_a_file_system_that_nobody_can_write_is_fine_whatever_the_modes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubernetes mounts a ConfigMap so."""
    path.parent.chmod(0o777)
    assert refused(path)
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_flag=os.ST_RDONLY))
    load(path, {})
