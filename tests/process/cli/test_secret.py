"""`mcpd secret` before a person, in a real Secret Service, and a server that gets the value."""

import json
import os
import subprocess
from pathlib import Path

import attrs

from daemon.secrets import keyring
from daemon.secrets.keyring import SERVICE
from tests.process.setup.users import User, user
from tests.scripted_server import command
from tests.secret_service import lock_all, service
from tests.terminals import INTERRUPT, Typing
from tests.waiting import run_to_end

__all__ = ["service", "user"]

CANARY = "canary-7f3a"


def file_of(user: User, name: str) -> Path:
    return user.home / ".config" / "mcpd" / "secrets" / name


def test_at_a_terminal_the_value_is_asked_for_once_and_not_shown(user: User) -> None:
    user.configure({"mcpServers": {"one": {"command": "a", "env": {"T": "${keyring:TOKEN}"}}}})
    with Typing(user, "secret", "set", "TOKEN") as typing:
        shown = typing.until("The value of TOKEN (not shown): ")
        typing.write(CANARY)
        status, said = typing.end()
    assert status == 0
    assert f"TOKEN is kept in {file_of(user, 'TOKEN')}" in said
    assert "`mcpd restart one`" in said
    assert CANARY not in shown + said
    assert file_of(user, "TOKEN").read_text() == CANARY
    with Typing(user, "secret", "set", "TOKEN") as typing:
        typing.until("(not shown): ")
        typing.press(INTERRUPT)
        status, said = typing.end()
    assert status == 130
    assert "Traceback" not in said
    assert file_of(user, "TOKEN").read_text() == CANARY


@attrs.frozen
class DesktopUser(User):
    """Somebody whose session has a bus."""

    @property
    def environ(self) -> dict[str, str]:
        return {**super().environ, "DBUS_SESSION_BUS_ADDRESS": os.environ["DBUS_SESSION_BUS_ADDRESS"]}


def test_a_desktops_secrets_are_in_its_keyring_until_that_is_locked(
    user: User, service: subprocess.Popen[bytes]
) -> None:
    user = DesktopUser(user.home)
    ran = run_to_end(user.command("secret", "set", "TOKEN"), env=user.environ, input=CANARY)
    assert (ran.stdout, ran.stderr, ran.returncode) == (f"TOKEN is kept in {SERVICE}\n", "", 0)
    assert f"TOKEN: {SERVICE}; not used" in user.mcpd("secret", "list").stdout
    assert keyring.read("TOKEN", user.environ) == CANARY
    lock_all()
    ran = user.mcpd("secret", "list")
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert "the Secret Service is locked: log in to the desktop" in ran.stderr
    assert CANARY not in ran.stderr


def test_up_moves_a_clients_secrets_into_the_keyring_and_its_server_gets_them(user: User) -> None:
    config = user.home / ".config" / "mcpd" / "mcpd.json"
    config.unlink()
    client = user.home / ".cursor" / "mcp.json"
    client.parent.mkdir()
    program, *args = command(tools=["env"])
    entry = {"command": program, "args": args, "env": {"API_TOKEN": CANARY}}
    client.write_text(json.dumps({"mcpServers": {"mine": entry}}))
    done = user.mcpd("up", "--yes", "--keyring", "--clients", "cursor")
    assert done.returncode == 0, done.stderr
    assert "Needs attention: nothing." in done.stdout
    assert file_of(user, "MINE__API_TOKEN").read_text() == CANARY
    assert "${keyring:MINE__API_TOKEN}" in config.read_text()
    assert not config.with_name("env").exists()
    assert CANARY not in client.read_text() + config.read_text() + user.log.read_text()
    called = user.mcpd("call", "mine/env")
    assert f'"API_TOKEN": "{CANARY}"' in called.stdout, called.stderr
    before = config.read_bytes(), client.read_bytes()
    again = user.mcpd("up", "--clients", "cursor")
    assert (again.returncode, again.stderr, config.read_bytes(), client.read_bytes()) == (0, "", *before)
    assert user.mcpd("uninstall", "cursor").returncode == 0
    assert CANARY in client.read_text()
