"""Secrets that commands print, and those in a real Secret Service, gnome-keyring, or in files beside it."""

import json
import os
import shlex
import signal
import subprocess
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, nullcontext
from pathlib import Path
from typing import Any

import pytest
import secretstorage
import trio
from secretstorage.collection import SESSION_COLLECTION
from secretstorage.defines import SS_PATH
from secretstorage.util import SERVICE_IFACE, DBusAddressWrapper

from daemon.errors import CannotStart
from daemon.host.paths import secrets_dir
from daemon.processes.children import MOST_PRINTED, Children
from daemon.secrets import commands, keyring
from daemon.secrets.keyring import SERVICE, SecretTrouble
from tests.faults.stage import is_alive, leaving_nothing
from tests.secret_service import lock_all, service
from tests.unit.cases import cases
from tests.unit.config.reading import config_of
from tests.waiting import PATIENCE, WAIT, background, beside, in_time

SECRET = "7fK2mQ9xVb4Z-secret"


async def asked(*words: str, **environ: str) -> str:
    """What a command says; nothing is left of it."""
    async with leaving_nothing(), keeping() as children:
        return await in_time(commands.said(words, {**os.environ, **environ}, children))


@asynccontextmanager
async def keeping() -> AsyncIterator[Children]:
    """The keeper of children; orphans that this process has adopted are reaped at the end, as in the daemon."""
    children = Children()
    try:
        yield children
    finally:
        with trio.CancelScope(shield=True):
            await children._look()


async def refused(*words: str, **environ: str) -> str:
    """Why it says nothing."""
    with pytest.raises(SecretTrouble) as trouble:
        await asked(*words, **environ)
    return str(trouble.value)


@cases("script", "text")
async def test_a_command_gives_what_it_prints_but_for_one_line_break(script: str, text: str) -> None:
    assert await asked("sh", "-c", script) == text


@cases("script", "problem")
async def test_a_command_that_gives_no_secret_is_named_with_the_reason(script: str, problem: str) -> None:
    assert await refused("sh", "-c", script) == f"`{shlex.join(('sh', '-c', script))}` {problem}"


async def test_no_shell_reads_a_command() -> None:
    assert await asked("printf", "%s|", "$HOME", "*", "a;b", "`id`") == "$HOME|*|a;b|`id`|"


async def test_a_command_sees_the_daemons_environment_and_home_and_no_input(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text(SECRET)
    home = {"HOME": str(tmp_path), "OP_SERVICE_ACCOUNT_TOKEN": "ops_x"}
    assert await asked("cat", "~/kept", **home) == SECRET
    said = await asked("sh", "-c", 'read -r line || echo "$(pwd) $OP_SERVICE_ACCOUNT_TOKEN"', **home)
    assert said == f"{tmp_path} ops_x"


async def test_a_command_that_is_not_there_is_told_with_the_path_that_was_searched() -> None:
    said = await refused("no-such-command", "x", PATH="/usr/bin:/nowhere")
    assert "no-such-command" in said
    assert "/usr/bin:/nowhere" in said


async def test_the_last_line_of_stderr_is_shown_without_what_looks_like_a_secret() -> None:
    told = await refused("sh", "-c", f"echo {SECRET}; echo 'no: {SECRET} ghp_{'a1B2' * 9}' >&2; exit 1")
    assert told.endswith("failed with exit status 1: no: [redacted] [redacted]")


@pytest.mark.parametrize("stream", [1, 2])
async def test_a_flood_costs_no_memory(stream: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "SECONDS", PATIENCE)
    tracemalloc.start()
    try:
        said = await refused(
            "sh", "-c", f"head -c 30000000 /dev/zero | tr '\\0' a >&{stream}; exit {stream - 1}"
        )
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert said.endswith("printed more than 64 KiB" if stream == 1 else "failed with exit status 1")
    assert most < 50 * MOST_PRINTED


async def test_output_without_end_is_told_as_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "SECONDS", 0.5)
    assert (await refused("yes")).endswith("` printed more than 64 KiB")


@cases("script")
async def test_what_does_not_end_is_ended(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "SECONDS", 0.5)
    said = await refused("sh", "-c", script, HOME=str(tmp_path))
    assert "did not end within 0.5 s" in said
    assert not _left(tmp_path)


@cases("how")
async def test_a_command_that_leaves_others_at_its_pipe_is_done_when_it_ends(how: str, tmp_path: Path) -> None:
    assert await asked("sh", "-c", f"echo {SECRET}; {how} echo $! >>pids", HOME=str(tmp_path)) == SECRET
    assert not _left(tmp_path)


async def test_a_command_is_done_although_another_process_keeps_its_output_open(tmp_path: Path) -> None:
    fifo, kept = tmp_path / "fifo", list[int]()
    os.mkfifo(fifo)

    def keep() -> None:
        kept.append(os.open(f"/proc/{fifo.read_text().strip()}/fd/1", os.O_WRONLY))
        fifo.write_text("go on\n")

    words = ("sh", "-c", f"echo $$ >{fifo}; read line <{fifo}; echo {SECRET}")
    async with keeping() as children, beside(trio.to_thread.run_sync, keep):
        assert await in_time(commands.said(words, os.environ, children)) == SECRET
    os.close(*kept)


@pytest.mark.parametrize("entry", [{"command": "x", "env": {"K": "$"}}, {"url": "http://x/?$"}])
async def test_a_process_takes_a_secret_of_several_lines_and_a_url_does_not(entry: dict[str, Any]) -> None:
    for lines in (1, 2):
        text = json.dumps({"s": entry}).replace("$", f"${{run:seq {lines}}}")
        server = config_of({"mcpServers": json.loads(text)}).mcp_servers["s"]
        takes = lines == 1 or "command" in entry
        async with leaving_nothing(), keeping() as children:
            with nullcontext() if takes else pytest.raises(CannotStart, match="printed several lines"):
                await in_time(commands.RunSecrets(children).filled(server))


def _left(directory: Path) -> list[int]:
    pids = directory / "pids"
    return [pid for pid in map(int, pids.read_text().split()) if is_alive(pid)] if pids.exists() else []


async def test_a_lookup_that_is_cancelled_ends_its_command(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    async with leaving_nothing(), keeping() as children:
        async with background() as nursery:
            words = ("sh", "-c", f"echo $$ >pids; : >{ready}; sleep 1000")
            nursery.start_soon(commands.said, words, {**os.environ, "HOME": str(tmp_path)}, children)
            await trio.to_thread.run_sync(ready.read_text)
        assert not _left(tmp_path)
    assert (tmp_path / "pids").exists()


async def test_commands_of_different_servers_run_side_by_side(tmp_path: Path) -> None:
    for name in ("a", "b"):
        os.mkfifo(tmp_path / name)
    # Each waits until the other runs.
    scripts = ("echo 1 >a; cat b", "cat a; echo 1 >b")
    children = Children()
    async with leaving_nothing(), trio.open_nursery() as nursery:
        for script in scripts:
            words = ("sh", "-c", f"{script}; echo x")
            nursery.start_soon(commands.said, words, {**os.environ, "HOME": str(tmp_path)}, children)


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
