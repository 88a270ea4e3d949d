"""Profiles in files of their own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from daemon.config.parse import load
from daemon.config.profile_files import FOLDER, MAX_BYTES, MAX_FILES, read_beside
from daemon.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


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


def test_each_file_is_the_profile_of_its_name(config: Path) -> None:
    write(config, "reader.json", '{"surface": "search", /* few */ "coreTools": ["read"],}')
    write(config, "notes.txt", "no profile")
    profiles = load(config, {}).profiles
    assert set(profiles) == {"default", "own", "reader"}
    assert (profiles["reader"].name, profiles["reader"].core_tools) == ("reader", ("read",))


def test_the_default_profile_may_be_a_file(config: Path) -> None:
    write(config, "default.json", '{"surface": "search"}')
    assert load(config, {}).profiles["default"].surface == "search"


def test_without_a_folder_there_are_none(tmp_path: Path) -> None:
    assert read_beside(tmp_path / "mcpd.json").profiles == {}


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
    places = {each.partition(": ")[0] for each in faults(config)}
    assert places == {
        "profiles.d/reader.json $.surface",
        "profiles.d/reader.json $.coreTool",
        "profiles.d/broken.json line 1, column 13",
        "profiles.d/list.json $",
        "profiles.d/latin.json",
        "profiles.d/large.json",
    }


def test_a_file_that_others_can_write_is_refused(config: Path) -> None:
    write(config, "reader.json", "{}").chmod(0o666)
    (told,) = faults(config)
    assert told.startswith("profiles.d/reader.json: ")


def test_what_is_no_regular_file_is_refused_by_name_and_not_waited_for(config: Path) -> None:
    os.mkfifo(config.parent / FOLDER / "pipe.json", 0o600)
    (config.parent / FOLDER / "folder.json").mkdir(0o700)
    folder, pipe = faults(config)
    assert folder == "profiles.d/folder.json: cannot be read: Is a directory"
    assert pipe.startswith("profiles.d/pipe.json: this is no regular file")


def test_what_others_keep_beside_the_files_is_no_profile(config: Path) -> None:
    write(config, "reader.json", "{}")
    (config.parent / FOLDER / ".#reader.json").symlink_to("me@host.1234:5678")
    write(config, "._reader.json", b"\0\5\x16\7")
    assert set(load(config, {}).profiles) == {"default", "own", "reader"}


def test_a_folder_of_something_else_is_refused(config: Path) -> None:
    for number in range(MAX_FILES + 1):
        write(config, f"{number}.json", "{}")
    assert any(told.startswith(f"profiles.d: {MAX_FILES + 1} files") for told in faults(config))


def test_a_folder_that_is_a_file_says_so(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("")
    (fault,) = read_beside(tmp_path / "mcpd.json").faults
    assert fault.message == "cannot be looked into: Not a directory"
