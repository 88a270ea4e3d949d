"""`mcpd secret` before a person, in a real Secret Service, and a server that gets the value."""

import os
import subprocess
from pathlib import Path

import attrs

from daemon.secrets import keyring
from daemon.secrets.keyring import SERVICE
from tests.process.setup.users import User, user
from tests.secret_service import lock_all, service
from tests.terminals import INTERRUPT, Typing
from tests.waiting import WAIT

__all__ = ["service", "user"]

CANARY = "canary-7f3a"


def file_of(user: User, name: str) -> Path:
    return user.home / ".config" / "mcpd" / "secrets" / name


def test_at_a_terminal_the_value_is_asked_for_once_and_not_shown(user: User) -> None:
    user.configure({"mcpServers": {"one": {"command": "a", "env": {"T": "${keyring:TOKEN}"}}}})
    with Typing(user, "secret", "set", "TOKEN") as typing:
        shown = typing.until("Value of TOKEN (not shown): ")
        typing.write(CANARY)
        status, said = typing.end()
    assert status == 0
    assert f"TOKEN is kept in {file_of(user, 'TOKEN')}" in said
    assert "`mcpd restart one`" in said
    assert CANARY not in shown + said
    assert file_of(user, "TOKEN").read_text() == CANARY
    with Typing(user, "secret", "set", "TOKEN") as typing:
        typing.until("(not shown): ")
        typing.write("")
        status, said = typing.end()
    assert status == 1
    assert "must be text" in said
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
    ran = subprocess.run(
        user.command("secret", "set", "TOKEN"),
        env=user.environ,
        input=CANARY,
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    assert (ran.stdout, ran.stderr, ran.returncode) == (f"TOKEN is kept in {SERVICE}\n", "", 0)
    assert f"TOKEN: {SERVICE}; not used" in user.mcpd("secret", "list").stdout
    assert keyring.read("TOKEN", user.environ) == CANARY
    lock_all()
    ran = user.mcpd("secret", "list")
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert "the Secret Service is locked: log in to the desktop" in ran.stderr
    assert CANARY not in ran.stderr
