"""A real Secret Service: gnome-keyring, on a session bus of its own."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import secretstorage

from daemon.secrets.keyring import SecretTrouble, collection
from tests.waiting import WAIT, eventually

BUS = """<busconfig><type>session</type><listen>unix:tmpdir=/tmp</listen><policy context="default">
<allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/></policy></busconfig>"""
"""A bus that starts no services by itself."""


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
        eventually(_answers)
        yield keyring
    finally:
        for each in (keyring, bus):
            if each is not None:
                each.kill()
                each.wait(WAIT)
        bus.stdout.close()


def _answers() -> bool:
    try:
        with collection(SecretTrouble, SecretTrouble, ""):
            return True
    except SecretTrouble:
        return False


def lock_all() -> None:
    """Lock the keyring, as a desktop does when its user leaves."""
    with closing(secretstorage.dbus_init()) as connection:
        for each in secretstorage.get_all_collections(connection):
            each.lock()
