"""The configuration: its faults, whether it is the one that counts, who can read and write it (real modes)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from daemon.checks.configuration import check, secrets
from daemon.checks.findings import Level
from tests.unit.cases import cases
from tests.unit.checks.scenes import NOBODY, levels, only, process

if TYPE_CHECKING:
    from tests.unit.checks.scenes import House

WORD = "hunter2-hunter2"
IN_ENV = {"command": "x", "env": {"API_KEY": WORD}}


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
    assert {each.what.partition(": unknown")[0] for each in found} == {
        "line 1, column 25: $.mcpServers.git.comand",
        "line 1, column 42: $.lazzy",
    }


def test_what_was_understood_as_something_else_is_noted(house: House) -> None:
    house.write('{"mcpServers": {"git": {"command": "x", "disabled": true}}}')
    said = only(check(house.look()), Level.NOTE)
    assert said.strip() == 'line 1, column 41: $.mcpServers.git.disabled: understood as "enabled": false'


def test_a_file_that_is_not_there_is_a_fault(house: House) -> None:
    house.config.unlink()
    assert "there is no such file" in only(check(house.look()), Level.FAULT)


@pytest.mark.process
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
    with house.daemon(startedAt=1000.0, configReadAt=3000.0):
        assert levels(check(house.look())) == ["ok"]
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


@cases("trail", "server")
def test_a_secret_that_everybody_can_read_is_a_fault(house: House, trail: str, server: dict[str, Any]) -> None:
    house.write({"mcpServers": {"s": server}}, mode=0o644)
    said = only(secrets(house.look()), Level.FAULT)
    assert trail in said
    assert f"chmod 600 {house.config}" in said
    assert WORD not in said


@pytest.mark.parametrize(("mode", "level"), [(0o640, Level.WARNING), (0o600, Level.NOTE)])
def test_a_secret_that_fewer_can_read_is_less(house: House, mode: int, level: Level) -> None:
    house.write({"mcpServers": {"s": IN_ENV}}, mode=mode)
    assert "$.mcpServers.s.env.API_KEY" in only(secrets(house.look()), level)


def test_a_closed_directory_keeps_others_out(house: House) -> None:
    house.write({"mcpServers": {"s": IN_ENV}}, mode=0o604)
    assert levels(secrets(house.look())) == ["fault"]
    house.root.chmod(0o700)
    assert levels(secrets(house.look())) == ["note"]


@cases("server")
def test_references_and_plain_values_are_no_secrets_of_the_file(house: House, server: dict[str, Any]) -> None:
    house.write({"mcpServers": {"s": server}}, mode=0o644)
    assert not list(secrets(house.look(KEY=WORD)))


def test_the_password_of_the_state_is_one_too(house: House) -> None:
    house.write({"state": {"url": f"postgresql://me:{WORD}@h/x"}})
    assert "$.state.url" in only(secrets(house.look()), Level.NOTE)


def test_a_secret_among_the_arguments_is_seen_by_everybody_also_by_reference(house: House) -> None:
    house.servers(s={"command": "x", "args": ["--token", "${KEY}"]})
    said = only(secrets(house.look(KEY=WORD)), Level.WARNING)
    assert "$.mcpServers.s.args[1]" in said
    assert "ps" in said
    assert WORD not in said


@pytest.mark.parametrize("open_one", ["config", "root"])
def test_what_everybody_can_write_was_a_fault_of_the_configuration_already(house: House, open_one: str) -> None:
    each = getattr(house, open_one)
    each.chmod(0o707)
    scene = house.look()
    assert [f"`chmod o-w {each}`" in fault.message for fault in scene.faults] == [True]
    assert not list(secrets(scene))


def test_a_group_that_can_write_is_a_warning_unless_it_is_the_users_own(house: House) -> None:
    house.config.chmod(0o660)
    own = house.config.stat().st_gid in {0, os.geteuid()}
    assert levels(secrets(house.look())) == ([] if own else ["warning"])
    if os.geteuid() == 0:
        os.chown(house.config, 0, NOBODY)
        assert levels(secrets(house.look())) == ["warning"]


def test_a_file_of_another_user_is_a_fault(house: House) -> None:
    if os.geteuid() == 0:
        os.chown(house.config, NOBODY, 0)
        assert f"uid {NOBODY}" in only(secrets(house.look()), Level.FAULT)
    else:
        # What root owns is trusted, and an ordinary user can give nothing away.
        assert not list(secrets(house.look()))


def test_without_a_file_no_secret_can_be_read(house: House) -> None:
    house.config.unlink()
    assert not list(secrets(house.look()))
