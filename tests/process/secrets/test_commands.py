"""Commands that print secrets: what counts as one, and what is left of commands that are hostile."""

import os
import shlex
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from daemon.processes.children import MOST_PRINTED, Children
from daemon.secrets import commands
from daemon.secrets.keyring import SecretTrouble
from tests.faults.stage import is_alive, leaving_nothing
from tests.unit.cases import cases
from tests.waiting import PATIENCE, background, in_time

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
