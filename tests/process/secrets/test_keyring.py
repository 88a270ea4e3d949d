"""Secrets in a real Secret Service, gnome-keyring, and besides it in files."""

import os
import signal
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
import secretstorage
from secretstorage.collection import SESSION_COLLECTION
from secretstorage.defines import SS_PATH
from secretstorage.util import SERVICE_IFACE, DBusAddressWrapper

from daemon.host.paths import secrets_dir
from daemon.secrets import keyring
from daemon.secrets.keyring import SERVICE, SecretTrouble
from tests.secret_service import lock_all, service
from tests.waiting import WAIT

__all__ = ["service"]

CANARY = "canary-7f3a"


@pytest.fixture
def environ(service: subprocess.Popen[bytes], tmp_path: Path) -> dict[str, str]:
    """A home whose session has a Secret Service."""
    return {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config")}


def test_a_secret_is_kept_in_the_service_and_nowhere_in_the_clear(
    environ: dict[str, str], tmp_path: Path
) -> None:
    assert keyring.names(environ) == {}
    assert keyring.write("GITHUB__TOKEN", "first", environ) == SERVICE
    assert keyring.write("GITHUB__TOKEN", CANARY, environ) == SERVICE
    assert keyring.write("OTHER", "x", environ) == SERVICE
    assert keyring.read("GITHUB__TOKEN", environ) == CANARY
    assert keyring.names(environ) == {"GITHUB__TOKEN": SERVICE, "OTHER": SERVICE}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".keyring" for path in files)
    assert not any(CANARY.encode() in path.read_bytes() for path in files)
    assert keyring.remove("GITHUB__TOKEN", environ)
    assert not keyring.remove("GITHUB__TOKEN", environ)
    assert keyring.names(environ) == {"OTHER": SERVICE}


def test_other_programs_items_are_neither_listed_nor_touched(environ: dict[str, str]) -> None:
    with closing(secretstorage.dbus_init()) as connection:
        collection = secretstorage.get_any_collection(connection)
        collection.create_item("a login of mcpd's", {"application": "mcpd", "server": "x"}, b"login")
        collection.create_item("somebody's", {"application": "other", "secret": "NAME"}, b"theirs")
        keyring.write("NAME", CANARY, environ)
        assert keyring.names(environ) == {"NAME": SERVICE}
        assert keyring.remove("NAME", environ)
        assert sorted(each.get_label() for each in collection.get_all_items()) == [
            "a login of mcpd's",
            "somebody's",
        ]


def test_while_the_service_is_locked_a_file_keeps_the_newer_value(environ: dict[str, str]) -> None:
    keyring.write("NAME", "older", environ)
    lock_all()
    with pytest.raises(SecretTrouble, match="the Secret Service is locked: log in to the desktop"):
        keyring.read("NAME", environ)
    with pytest.raises(SecretTrouble, match="is locked"):
        keyring.names(environ)
    file = secrets_dir(environ) / "NAME"
    assert keyring.write("NAME", CANARY, environ) == str(file)
    assert keyring.read("NAME", environ) == CANARY
    # The value in the service would come back once it is unlocked.
    with pytest.raises(SecretTrouble, match="is locked"):
        keyring.remove("NAME", environ)
    assert not file.exists()


def test_a_service_without_a_lasting_collection_is_none(environ: dict[str, str]) -> None:
    with closing(secretstorage.dbus_init()) as connection:
        DBusAddressWrapper(SS_PATH, SERVICE_IFACE, connection).call("SetAlias", "so", "default", "/")
        # In it, the value would be gone after the logout.
        assert secretstorage.get_any_collection(connection).collection_path == SESSION_COLLECTION
    assert keyring.write("NAME", CANARY, environ) == str(secrets_dir(environ) / "NAME")
    assert keyring.names(environ) == {"NAME": str(secrets_dir(environ) / "NAME")}


def test_once_the_service_can_be_used_it_keeps_the_only_value(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/none")
        keyring.write("NAME", "older", environ)
    keyring.write("OTHER", "x", environ)
    assert keyring.names(environ) == {"NAME": str(secrets_dir(environ) / "NAME"), "OTHER": SERVICE}
    assert keyring.write("NAME", CANARY, environ) == SERVICE
    assert not (secrets_dir(environ) / "NAME").exists()
    assert keyring.read("NAME", environ) == CANARY


def test_a_service_that_hangs_is_waited_for_within_bounds_and_one_that_is_gone_is_none(
    service: subprocess.Popen[bytes], environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyring, "ANSWER_SECONDS", 0.1)
    service.send_signal(signal.SIGSTOP)
    with pytest.raises(SecretTrouble, match=r"cannot be used \(TimeoutError\)"):
        keyring.read("NAME", environ)
    assert keyring.write("NAME", CANARY, environ) == str(secrets_dir(environ) / "NAME")
    assert keyring.read("NAME", environ) == CANARY
    service.kill()
    service.wait(WAIT)
    with pytest.raises(SecretTrouble, match="there is no secret OTHER"):
        keyring.read("OTHER", environ)
    assert [*keyring.names(environ)] == ["NAME"]


def test_what_another_program_keeps_under_the_name_is_no_secret_unless_it_is_text(
    environ: dict[str, str],
) -> None:
    keyring.write("NAME", "x", environ)
    with closing(secretstorage.dbus_init()) as connection:
        (item,) = secretstorage.get_any_collection(connection).get_all_items()
        item.set_secret(b"\xff" + CANARY.encode())
    with pytest.raises(SecretTrouble, match="secret NAME must be text"):
        keyring.read("NAME", environ)


def test_an_address_at_which_no_bus_is_means_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    for address in ("", "disabled:", "tcp:host=localhost,port=1", "unix:path=/none"):
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
        assert keyring.write("NAME", address or "x", environ) == str(secrets_dir(environ) / "NAME")
        assert keyring.read("NAME", environ) == (address or "x")
