"""Logins in a real Secret Service: gnome-keyring, on a session bus of its own."""

import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import secretstorage

from daemon.authorization import logins
from daemon.authorization.logins import Login, LoginsTrouble, SecretServiceLogins, logins_in
from tests.waiting import WAIT, eventually

BUS = """<busconfig><type>session</type><listen>unix:tmpdir=/tmp</listen><policy context="default">
<allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/></policy></busconfig>"""
"""A bus that starts no services by itself."""

URL = "https://mcp.example/mcp"
LOGIN = Login(url=URL, issuer="i", token_endpoint="t", client_id="c", access_token="canary", refresh_token="r")


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A Secret Service whose keyring is unlocked."""
    (tmp_path / "bus.conf").write_text(BUS)
    bus = subprocess.Popen(
        ["dbus-daemon", f"--config-file={tmp_path / 'bus.conf'}", "--nofork", "--print-address"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert bus.stdout is not None
    keyring = None
    try:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", bus.stdout.readline().decode().strip())
        home = {name: str(tmp_path) for name in ("HOME", "XDG_RUNTIME_DIR", "XDG_DATA_HOME")}
        keyring = subprocess.Popen(
            ["gnome-keyring-daemon", "--foreground", "--unlock", "--components=secrets"],
            env={**os.environ, **home},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert keyring.stdin is not None
        keyring.stdin.write(b"password")
        keyring.stdin.close()
        eventually(partial(_answers, SecretServiceLogins(tmp_path)))
        yield keyring
    finally:
        for each in (keyring, bus):
            if each is not None:
                each.kill()
                each.wait(WAIT)
        bus.stdout.close()


def _answers(logins: SecretServiceLogins) -> bool:
    try:
        logins.read("notion", URL)
    except LoginsTrouble:
        return False
    return True


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
    for each in secretstorage.get_all_collections(connection):
        each.lock()
    connection.close()
    with pytest.raises(LoginsTrouble, match="is locked"):
        logins.read("notion", URL)
    with pytest.raises(LoginsTrouble, match="is locked"):
        logins.write("notion", LOGIN)


def test_a_service_that_hangs_or_has_gone_is_waited_for_within_bounds(
    service: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "ANSWER_SECONDS", 0.1)
    service.send_signal(signal.SIGSTOP)
    with pytest.raises(LoginsTrouble, match=r"cannot be used \(TimeoutError\)"):
        SecretServiceLogins(tmp_path).read("notion", URL)
    service.kill()
    service.wait(WAIT)
    with pytest.raises(LoginsTrouble, match="keep logins in files"):
        SecretServiceLogins(tmp_path).read("notion", URL)


def test_without_a_session_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path}/none")
    with pytest.raises(LoginsTrouble, match="within the desktop's session"):
        SecretServiceLogins(tmp_path).read("notion", URL)
