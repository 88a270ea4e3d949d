"""A configuration that others can write is not read, by real owners and modes."""

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from daemon.config import config_files
from daemon.config.config_files import FOLDER, MAX_BYTES, MAX_FILES, files_of, open_to_others
from daemon.config.expand import MAX_FILE
from daemon.config.parse import load, load_with_notes
from daemon.errors import ConfigError
from daemon.surfaces.table import SURFACES

STRANGER = 64_322
"""A user that no machine has."""

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
    # On a disk of Windows, all files have the mode that it is mounted with.
    assert f"`chmod o-w {each}`, or where modes are fixed (WSL's /mnt/c, vfat) move the config" in message
    each.chmod(stat.S_IMODE(each.stat().st_mode) & ~stat.S_IWOTH)
    load(path, {})


def test_all_that_is_open_is_named_at_once(path: Path) -> None:
    path.chmod(0o666)
    path.parent.chmod(0o777)
    named = [fault.message.split(",")[0].rpartition(" ")[2] for fault in open_to_others(path)]
    assert named == [str(path), str(path.parent)]


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


def test_a_group_may_write_if_it_is_our_own_or_the_owners(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        monkeypatch.setattr(config_files, "_UID_MAP", Path(os.devnull))
        load(path, {})


def test_a_file_system_that_nobody_can_write_is_fine_whatever_the_modes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubernetes mounts a ConfigMap so."""
    path.parent.chmod(0o777)
    assert refused(path)
    assert not open_to_others(Path(os.devnull)), "what is no file is not ours to judge"
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_flag=os.ST_RDONLY))
    load(path, {})


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "mcpd.json"
    path.write_text('{"profiles": {"own": {"surface": "browse"}}}')
    (tmp_path / FOLDER).mkdir()
    return path


def write(config: Path, name: str, text: str | bytes) -> Path:
    path = config.parent / FOLDER / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def faults(config: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(config, {}, ("category", "browse", "search"))
    return [str(fault) for fault in caught.value.faults]


def test_each_file_is_the_profile_of_its_name_and_what_others_keep_beside_them_is_none(config: Path) -> None:
    write(config, "reader.json", '{"surface": "search", /* few */ "coreTools": ["read"],}')
    write(config, "default.json", '{"surface": "search"}')
    write(config, "notes.txt", "no profile")
    write(config, "._reader.json", b"\0\5\x16\7")
    (config.parent / FOLDER / ".#reader.json").symlink_to("me@host.1234:5678")
    profiles = load(config, {}).profiles
    assert set(profiles) == {"default", "own", "reader"}
    assert (profiles["reader"].name, profiles["reader"].core_tools) == ("reader", ("read",))
    assert profiles["default"].surface == "search"


def test_a_profile_in_two_places_is_a_fault_that_names_both(config: Path) -> None:
    write(config, "own.json", "{}")
    (told,) = faults(config)
    assert told.startswith("profiles.d/own.json: ")
    assert f"{config} has this profile, too, at $.profiles.own" in told


def test_a_fault_within_a_file_names_the_file_and_the_place_in_it(config: Path) -> None:
    write(config, "reader.json", '{"surface": "nonsense", "coreTool": []}')
    write(config, "broken.json", '{"surface": ')
    write(config, "list.json", "[]")
    write(config, "latin.json", b'{"prompt": "\xe4"}')
    write(config, "large.json", " " * (MAX_BYTES + 1))
    with pytest.raises(ConfigError) as caught:
        load(config, {}, SURFACES)
    assert {(fault.path, fault.line, fault.column) for fault in caught.value.faults} == {
        ("profiles.d/reader.json $.surface", 1, 2),
        ("profiles.d/reader.json $.coreTool", 1, 25),
        ("profiles.d/broken.json $", 1, 13),
        ("profiles.d/list.json $", 1, 1),
        ("profiles.d/latin.json", None, None),
        ("profiles.d/large.json", None, None),
    }


def test_what_others_can_write_or_is_no_regular_file_is_refused_by_name_and_not_waited_for(
    config: Path,
) -> None:
    write(config, "reader.json", "{}").chmod(0o666)
    os.mkfifo(config.parent / FOLDER / "pipe.json", 0o600)
    (config.parent / FOLDER / "folder.json").mkdir(0o700)
    folder, pipe, reader = faults(config)
    assert folder == "profiles.d/folder.json: cannot be read: Is a directory"
    assert pipe.startswith("profiles.d/pipe.json: this is not a regular file")
    assert reader.startswith("profiles.d/reader.json: every user of this machine can write")


def test_a_folder_of_something_else_or_a_file_in_its_place_is_refused(config: Path) -> None:
    for number in range(MAX_FILES + 1):
        write(config, f"{number}.json", "{}")
    assert any(told.startswith(f"profiles.d: {MAX_FILES + 1} files") for told in faults(config))
    (config.parent / FOLDER).rename(config.parent / "moved")
    (config.parent / FOLDER).write_text("")
    assert faults(config) == ["profiles.d: cannot be looked into: Not a directory"]


def test_variables_are_kept_beside_the_configuration(config: Path) -> None:
    env = config.with_name("env")
    env.write_text("# mine\nTOKEN='k3pt s3cr3t'\nHOME=/nowhere\n")
    env.chmod(0o600)
    config.write_text('{"mcpServers": {"s": {"command": "x", "args": ["${TOKEN}", "${env:HOME}"]}}}')
    loaded = load_with_notes(config, {"HOME": "/home/ada"})
    server = loaded.config.mcp_servers["s"]
    assert server.args == ("k3pt s3cr3t", "/home/ada")
    assert server.credentials == {"k3pt s3cr3t"}
    assert loaded.notes == ()


def test_they_belong_to_what_is_watched_and_are_noted_if_others_can_read_them(config: Path) -> None:
    assert files_of(config) == []
    env = config.with_name("env")
    env.write_text("TOKEN=x")
    env.chmod(0o644)
    (note,) = load_with_notes(config, {}).notes
    assert str(note) == f"env: other users can read what is kept here: `chmod 600 {env}`"
    config.with_name("mcpd.lock").write_text("{}")
    assert files_of(config) == [env, config.with_name("mcpd.lock")]


@pytest.mark.parametrize(
    ("content", "mode", "told"),
    [
        (b"TOKEN=x", 0o666, "env: every user of this machine can write"),
        (b"A=1\ns3cr3t", 0o600, "env: line 2 is not KEY=VALUE: write NAME=VALUE, or a # before a comment"),
        (b"A=\xff", 0o600, "env: line 1 is not UTF-8"),
        (b"#" * (MAX_FILE + 1), 0o600, "env: larger than 64 KiB: this is not a file of variables"),
    ],
)
def test_a_bad_file_of_variables_is_a_fault_that_names_it(
    config: Path, content: bytes, mode: int, told: str
) -> None:
    env = config.with_name("env")
    env.write_bytes(content)
    env.chmod(mode)
    (fault,) = faults(config)
    assert fault.startswith(told)
    assert "s3cr3t" not in fault


def test_root_obeys_no_other_users_configuration(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    lstat = Path.lstat

    def owned(owner: int, what: Path) -> None:
        def of(self: Path) -> os.stat_result:
            fields = list(lstat(self))
            fields[4] = owner if self == what else 0
            return os.stat_result(fields)

        monkeypatch.setattr(Path, "lstat", of)

    owned(0, path)
    load(path, {})
    for what in (path, path.parent):
        owned(STRANGER, what)
        assert f"user {STRANGER} owns {what}, and root accepts no other user's" in refused(path)
        assert f"`sudo -u '#{STRANGER}' …`" in refused(path)
    monkeypatch.setattr(config_files, "_UID_MAP", path.with_name("uid_map"))
    path.with_name("uid_map").write_text("0 1000 1\n")
    load(path, {})
