"""The configuration: faults, and whether it is the one that counts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from daemon.cli.checkup.configuration import check
from daemon.cli.checkup.scene import Level
from tests.cli.checkup.scenes import levels, only, process

if TYPE_CHECKING:
    from tests.cli.checkup.scenes import House


def test_a_sound_one_is_counted(house: House) -> None:
    house.servers(git={"command": "git"})
    found = list(check(house.look()))
    assert levels(found) == ["ok"]
    assert f"{house.config}: servers: 1, categories: 0" in found[0].what


def test_an_empty_one_is_noted(house: House) -> None:
    assert "mcpServers" in only(check(house.look()), Level.NOTE)


def test_every_fault_is_told_with_its_place(house: House) -> None:
    house.write('{"mcpServers": {"git": {"comand": "x"}}, "lazzy": true}')
    found = list(check(house.look()))
    assert levels(found) == ["fault", "fault"]
    assert {each.what.partition(":")[0] for each in found} == {"$.mcpServers.git.comand", "$.lazzy"}


def test_a_file_that_is_not_there_is_a_fault(house: House) -> None:
    house.config.unlink()
    assert "there is no such file" in only(check(house.look()), Level.FAULT)


def test_a_variable_that_is_not_set_says_where_it_was_looked_up(house: House) -> None:
    house.servers(git={"command": "${PROGRAM}"})
    said = only(check(house.look()), Level.FAULT)
    assert "PROGRAM is not set" in said
    assert "of this command" in said
    with process(house.root) as pid, house.daemon(pid=pid):
        assert f"of the daemon, pid {pid}" in only(check(house.look()), Level.FAULT)


def test_a_key_for_summaries_that_is_not_set_is_a_warning(house: House) -> None:
    house.write('{"summaries": {"baseUrl": "http://h/v1", "model": "m", "apiKeyEnv": "THE_KEY"}}')
    said = only(check(house.look()), Level.WARNING)
    assert "THE_KEY (summaries.apiKeyEnv) is not set: no model is asked" in said
    assert "of this command" in said


def test_another_configuration_than_the_daemons_is_a_warning(house: House) -> None:
    other = house.root / "other.json"
    other.write_text("{}")
    with house.daemon(config=str(other)):
        assert str(other) in only(check(house.look(house.config)), Level.WARNING)
        assert "with --config" in only(list(check(house.look()))[2:], Level.NOTE)


def test_the_same_file_by_another_name_is_the_same(house: House) -> None:
    (house.root / "link.json").symlink_to(house.config)
    with house.daemon(startedAt=house.config.stat().st_mtime + 1):
        assert levels(check(house.look(house.root / "link.json"))) == ["ok", "note"]


def test_a_file_that_was_changed_since_the_start_is_noted_unless_it_is_watched(house: House) -> None:
    house.servers(git={"command": "git"})
    os.utime(house.config, (2000, 2000))
    with house.daemon(startedAt=1000.0):
        assert "mcpd reload" in only(check(house.look()), Level.NOTE)
    with house.daemon(startedAt=3000.0):
        assert levels(check(house.look())) == ["ok"]
    house.write({"mcpServers": {"git": {"command": "git"}}, "watch": True})
    with house.daemon(startedAt=1000.0):
        assert levels(check(house.look())) == ["ok"]


def test_tools_that_nobody_offers_are_warned_of(house: House) -> None:
    house.servers(git={"command": "git"})
    with house.daemon(startedAt=9e9) as status:
        status["unresolved"] = ["git/git_lgo"]
        assert "git/git_lgo" in only(check(house.look()), Level.WARNING)
