"""Secrets in files, where no Secret Service answers."""

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.config.jsonc import sound
from daemon.host import private_files
from daemon.host.paths import secrets_dir
from daemon.secrets import keyring
from daemon.secrets.keyring import SecretTrouble

CANARY = "canary-7f3a"


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """A home without a session bus."""
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path}/none")
    return {"XDG_CONFIG_HOME": str(tmp_path / "config")}


def test_a_secret_is_kept_replaced_and_removed_in_a_file_that_only_its_user_can_read(
    environ: Mapping[str, str],
) -> None:
    folder = secrets_dir(environ)
    assert keyring.names(environ) == {}
    assert not folder.exists()
    assert keyring.write("GITHUB__TOKEN", "first", environ) == str(folder / "GITHUB__TOKEN")
    keyring.write("GITHUB__TOKEN.new", "another", environ)
    assert keyring.write("GITHUB__TOKEN", CANARY, environ) == str(folder / "GITHUB__TOKEN")
    assert keyring.read("GITHUB__TOKEN", environ) == CANARY
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "GITHUB__TOKEN").stat().st_mode) == 0o600
    assert keyring.names(environ) == {
        name: str(folder / name) for name in ("GITHUB__TOKEN", "GITHUB__TOKEN.new")
    }
    assert keyring.remove("GITHUB__TOKEN", environ)
    assert not keyring.remove("GITHUB__TOKEN", environ)
    assert [*keyring.names(environ)] == ["GITHUB__TOKEN.new"]
    with pytest.raises(SecretTrouble, match="`mcpd secret set GITHUB__TOKEN` sets it"):
        keyring.read("GITHUB__TOKEN", environ)


@given(value=st.text(min_size=1, max_size=50).filter(sound))
def test_every_text_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path_factory.mktemp("config"))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/none")
        keyring.write("NAME", value, environ)
        assert keyring.read("NAME", environ) == value


@pytest.mark.parametrize(
    "name",
    ["", "..", "../up", "a/b", "/etc/passwd", ".hidden", "-x", "_x", "a" * 129, "a b", "a\n", "a\0", "é"],
)
def test_a_name_that_leads_elsewhere_is_refused(environ: Mapping[str, str], name: str) -> None:
    uses: dict[Callable[..., object], tuple[str, ...]] = {keyring.read: (), keyring.remove: ()}
    for use, more in {**uses, keyring.write: (CANARY,)}.items():
        with pytest.raises(SecretTrouble, match="cannot be the name of a secret") as caught:
            use(name, *more, environ)
        assert CANARY not in str(caught.value)
    assert keyring.names(environ) == {}


@pytest.mark.parametrize(
    "value", ["", f"{CANARY}\0", f"{CANARY}\udc80", CANARY * 10_000], ids=["none", "NUL", "half", "large"]
)
def test_a_value_that_no_variable_holds_is_refused_and_not_shown(
    environ: Mapping[str, str], value: str
) -> None:
    keyring.write("NAME", "before", environ)
    with pytest.raises(SecretTrouble, match="must be text: UTF-8 without a NUL") as caught:
        keyring.write("NAME", value, environ)
    assert CANARY not in repr(caught.value.__context__)
    assert CANARY not in str(caught.value)
    assert keyring.read("NAME", environ) == "before"


@pytest.mark.parametrize("content", [b"", b"\xff" + CANARY.encode(), b"x" * (64 * 1024 + 1), b"a\0b"])
def test_a_file_that_somebody_filled_with_something_else_is_not_used(
    environ: Mapping[str, str], content: bytes
) -> None:
    keyring.write("NAME", "before", environ)
    (secrets_dir(environ) / "NAME").write_bytes(content)
    with pytest.raises(SecretTrouble, match="secret NAME must be text") as caught:
        keyring.read("NAME", environ)
    assert CANARY not in repr(caught.value.__context__)


def test_files_and_directories_that_others_could_read_are_refused(environ: Mapping[str, str]) -> None:
    keyring.write("NAME", CANARY, environ)
    folder = secrets_dir(environ)
    for exposed in (folder / "NAME", folder):
        before = exposed.stat().st_mode
        exposed.chmod(before | 0o040)
        with pytest.raises(SecretTrouble, match=r"others can read or write .*: chmod [67]00 "):
            keyring.read("NAME", environ)
        exposed.chmod(before)
    folder.chmod(0o755)
    for use in (keyring.names, lambda environ: keyring.write("OTHER", CANARY, environ)):
        with pytest.raises(SecretTrouble, match="others can read or write"):
            use(environ)
    folder.chmod(0o700)
    assert [*keyring.names(environ)] == ["NAME"]


def test_a_secret_that_others_could_read_is_replaced_by_a_private_one_and_another_users_refused(
    environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keyring.write("NAME", "before", environ)
    file = secrets_dir(environ) / "NAME"
    file.chmod(0o644)
    keyring.write("NAME", CANARY, environ)
    assert (stat.S_IMODE(file.stat().st_mode), keyring.read("NAME", environ)) == (0o600, CANARY)
    monkeypatch.setattr(os, "geteuid", lambda: 64_322)
    with pytest.raises(SecretTrouble, match="not to this user"):
        keyring.read("NAME", environ)


def test_no_link_is_followed_and_no_pipe_waited_for(environ: Mapping[str, str], tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (elsewhere / "NAME").write_text("somebody's")
    (elsewhere / "NAME").chmod(0o600)
    folder = secrets_dir(environ)
    folder.parent.mkdir(parents=True)
    folder.symlink_to(elsewhere)
    for use in (keyring.names, lambda environ: keyring.write("NAME", CANARY, environ)):
        with pytest.raises(SecretTrouble, match="remove it"):
            use(environ)
    folder.unlink()
    keyring.write("OTHER", CANARY, environ)
    (folder / "NAME").symlink_to(elsewhere / "NAME")
    with pytest.raises(SecretTrouble, match="NAME cannot be used"):
        keyring.read("NAME", environ)
    keyring.write("NAME", CANARY, environ)
    assert keyring.remove("OTHER", environ)
    assert (elsewhere / "NAME").read_text() == "somebody's"
    os.mkfifo(folder / "PIPE", 0o600)
    with pytest.raises(SecretTrouble, match="remove it"):
        keyring.read("PIPE", environ)


def test_a_directory_that_cannot_be_made_or_is_in_use_says_so(
    environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = secrets_dir(environ)
    folder.parent.parent.mkdir()
    folder.parent.write_text("")
    with pytest.raises(SecretTrouble, match=r"cannot be used: (Not a directory|File exists)"):
        keyring.write("NAME", CANARY, environ)
    folder.parent.unlink()
    folder.mkdir(parents=True, mode=0o700)
    monkeypatch.setattr(keyring, "LOCK_SECONDS", 0.0)
    with private_files.locked(folder / ".all", 0), pytest.raises(SecretTrouble, match="another mcpd"):
        keyring.write("NAME", CANARY, environ)
