"""Logins in a real Secret Service: gnome-keyring, on a session bus of its own."""

import subprocess
from pathlib import Path

import pytest
import secretstorage

from daemon.authorization.logins import Login, LoginsTrouble, SecretServiceLogins, logins_in
from tests.secret_service import lock_all, service

__all__ = ["service"]

URL = "https://mcp.example/mcp"
LOGIN = Login(url=URL, issuer="i", token_endpoint="t", client_id="c", access_token="canary", refresh_token="r")


def test_logins_are_kept_and_forgotten_and_not_shared_with_other_states(
    service: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    logins = logins_in(tmp_path / "a", secret_service=True)
    assert logins.read("notion", URL) is None
    logins.write("notion", LOGIN)
    with logins.locked("notion"):
        logins.write("notion", LOGIN)
    assert logins.read("notion", URL) == LOGIN
    assert logins.read("notion", "https://elsewhere.example") is None
    assert logins.read("linear", URL) is None
    assert logins_in(tmp_path / "b", secret_service=True).read("notion", URL) is None
    # Not in the clear, neither in the keyring's file nor in ours.
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".keyring" for path in files)
    assert not any(b"canary" in path.read_bytes() for path in files)
    logins.remove("notion")
    logins.remove("notion")
    assert logins.read("notion", URL) is None


def test_a_keyring_that_is_locked_or_damaged_says_what_to_do(
    service: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    logins = SecretServiceLogins(tmp_path)
    logins.write("notion", LOGIN)
    connection = secretstorage.dbus_init()
    collection = secretstorage.get_any_collection(connection)
    (item,) = collection.get_all_items()
    item.set_secret(b"{")
    with pytest.raises(LoginsTrouble, match="is damaged: `mcpd login notion`"):
        logins.read("notion", URL)
    connection.close()
    lock_all()
    with pytest.raises(LoginsTrouble, match="is locked"):
        logins.read("notion", URL)
    with pytest.raises(LoginsTrouble, match="is locked"):
        logins.write("notion", LOGIN)


def test_without_a_session_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path}/none")
    with pytest.raises(LoginsTrouble, match="within the desktop's session"):
        SecretServiceLogins(tmp_path).read("notion", URL)
