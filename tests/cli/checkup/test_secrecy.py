"""Who else can read the secrets, or write what will be run: by real owners and modes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli.checkup.scene import Level
from daemon.cli.checkup.secrecy import check
from tests.cli.checkup.scenes import NOBODY, levels, only

if TYPE_CHECKING:
    from tests.cli.checkup.scenes import House

WORD = "hunter2-hunter2"
LITERAL: list[tuple[str, dict[str, Any]]] = [
    ("$.mcpServers.s.env.API_KEY", {"command": "x", "env": {"API_KEY": WORD}}),
    (
        "$.mcpServers.s.headers.Authorization",
        {"url": "https://h/", "headers": {"Authorization": f"Bearer {WORD}"}},
    ),
    ("$.mcpServers.s.url", {"url": f"https://me:{WORD}@h/"}),
    ("$.mcpServers.s.url", {"url": f"https://h/?api_key={WORD}"}),
    ("$.mcpServers.s.args[1]", {"command": "x", "args": ["--token", WORD]}),
    ("$.mcpServers.s.args[0]", {"command": "x", "args": [f"--api-key={WORD}"]}),
]
HARMLESS: list[dict[str, Any]] = [
    {"command": "x", "env": {"API_KEY": "${KEY}", "LOG_LEVEL": "warning", "TOKEN": ""}},
    {"url": "https://h/?page=2", "headers": {"Authorization": "Bearer ${KEY}", "Accept": "text/plain"}},
    {"url": "https://me:${KEY}@h/"},
    {"command": "x", "args": ["--token-file", "/run/token", "--token", "--verbose", "--key"]},
    {"url": "https://h/", "headers": {"Authorization": "Bearer ${UNSET}"}, "enabled": False},
]


@pytest.mark.parametrize(("trail", "server"), LITERAL)
def test_a_secret_that_everybody_can_read_is_a_fault(house: House, trail: str, server: dict[str, Any]) -> None:
    house.write({"mcpServers": {"s": server}}, mode=0o644)
    said = only(check(house.look()), Level.FAULT)
    assert trail in said
    assert f"chmod 600 {house.config}" in said
    assert WORD not in said


@pytest.mark.parametrize(("mode", "level"), [(0o640, Level.WARNING), (0o600, Level.NOTE)])
def test_a_secret_that_fewer_can_read_is_less(house: House, mode: int, level: Level) -> None:
    house.write({"mcpServers": {"s": LITERAL[0][1]}}, mode=mode)
    assert LITERAL[0][0] in only(check(house.look()), level)


def test_a_closed_directory_keeps_others_out(house: House) -> None:
    house.write({"mcpServers": {"s": LITERAL[0][1]}}, mode=0o604)
    assert levels(check(house.look())) == ["fault"]
    house.root.chmod(0o700)
    assert levels(check(house.look())) == ["note"]


@pytest.mark.parametrize("server", HARMLESS)
def test_references_and_plain_values_are_no_secrets_of_the_file(house: House, server: dict[str, Any]) -> None:
    house.write({"mcpServers": {"s": server}}, mode=0o644)
    assert not list(check(house.look(KEY=WORD)))


def test_the_password_of_the_state_is_one_too(house: House) -> None:
    house.write({"state": {"url": f"postgresql://me:{WORD}@h/x"}})
    assert "$.state.url" in only(check(house.look()), Level.NOTE)


def test_a_secret_among_the_arguments_is_seen_by_everybody_also_by_reference(house: House) -> None:
    house.servers(s={"command": "x", "args": ["--token", "${KEY}"]})
    said = only(check(house.look(KEY=WORD)), Level.WARNING)
    assert "$.mcpServers.s.args[1]" in said
    assert "ps" in said
    assert WORD not in said


@pytest.mark.parametrize("open_one", ["config", "root"])
def test_what_everybody_can_write_was_a_fault_of_the_configuration_already(house: House, open_one: str) -> None:
    each = getattr(house, open_one)
    each.chmod(0o707)
    scene = house.look()
    assert [f"`chmod o-w {each}`" in fault.message for fault in scene.faults] == [True]
    assert not list(check(scene))


def test_a_group_that_can_write_is_a_warning_unless_it_is_the_users_own(house: House) -> None:
    house.config.chmod(0o660)
    own = house.config.stat().st_gid in {0, os.geteuid()}
    assert levels(check(house.look())) == ([] if own else ["warning"])
    if os.geteuid() == 0:
        os.chown(house.config, 0, NOBODY)
        assert levels(check(house.look())) == ["warning"]


def test_a_file_of_another_user_is_a_fault(house: House) -> None:
    if os.geteuid() == 0:
        os.chown(house.config, NOBODY, 0)
        assert f"uid {NOBODY}" in only(check(house.look()), Level.FAULT)
    else:
        # What root owns is trusted, and an ordinary user can give nothing away.
        assert not list(check(house.look()))


def test_without_a_file_there_is_nothing_to_say(house: House) -> None:
    house.config.unlink()
    assert not list(check(house.look()))
