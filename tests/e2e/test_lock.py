"""`mcpd lock` with real servers, through a daemon of its own and through one that runs."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from daemon.cli.control import RemoteFault
from daemon.config.lock_file import LOCK, lock_in
from tests.e2e.harness import (
    MCPD,
    ROOT,
    Daemon,
    left_behind,
    node_server,
    own_directory,
    program,
    running,
    scripted,
    started,
)
from tests.scripted_server import command, tool
from tests.waiting import WAIT, eventually

Json = dict[str, Any]


class Project:
    """A configuration that no daemon serves, and its lock."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.config = daemon.config
        self.lock = daemon.config.with_name(LOCK)

    def run(self, *words: str) -> tuple[int, str, str]:
        """`mcpd lock WORDS`: its exit status, what it printed, and its notes."""
        done = self.daemon.outcome("lock", "--config", str(self.config), *words)
        return done.returncode, done.stdout, done.stderr

    def check(self) -> tuple[int, list[tuple[str, str, str]]]:
        """The exit status and the differences of a check."""
        status, out, err = self.run("--check", "--json")
        assert out, err
        return status, [(each["server"], each["what"], each["name"]) for each in json.loads(out)["drift"]]

    def locked(self) -> Json:
        """The servers in the lock."""
        servers: Json = json.loads(self.lock.read_bytes())["servers"]
        return servers


@contextmanager
def project(**servers: Any) -> Iterator[Project]:
    """A project without a daemon; in the end nothing of it may be left."""
    daemon = Daemon(own_directory(), {"mcpServers": servers}, {})
    daemon.environ["TMPDIR"] = str(daemon.directory)
    yield Project(daemon)
    assert not left_behind(daemon.directory)
    assert not list(daemon.directory.glob("mcpd-lock-*"))


def changeable(script: Path, *tools: Any, **more: Any) -> Json:
    """The entry of a server that lists what its file says when it starts."""
    script.write_text(json.dumps({"tools": list(tools), **more}))
    program, *args = command()
    return {"command": program, "args": [*args[:-1], f"@{script}"]}


def lists(project: Project, *tools: Any, name: str = "script") -> Json:
    """The entry of such a server of a project."""
    return changeable(project.daemon.directory / name, *tools)


def configure(project: Project, **servers: Any) -> None:
    project.config.write_text(json.dumps({"mcpServers": servers}))


# --- through a daemon of its own --------------------------------------------------------------------------


def test_two_machines_write_the_same_bytes_of_real_servers_and_a_check_finds_no_difference() -> None:
    servers = {
        "time": {
            "command": program("mcp-server-time"),
            "args": ["--local-timezone", "UTC"],
            "trust": "changes",
        },
        "memory": {**node_server("server-memory"), "start": "lazy"},
        "everything": {**node_server("server-everything"), "share": "session"},
        "off": {"command": "/no/program", "enabled": False},
    }
    texts, locked = [], Json()
    for machine in range(2):
        with project(**servers) as here:
            status, out, err = here.run()
            assert (status, out) == (0, f"{here.lock} is written\n")
            assert "off is not locked: it is switched off" in err
            texts.append(here.lock.read_bytes())
            if machine:
                assert here.check() == (0, [])
            assert not here.daemon.state.exists()
            locked = here.locked()
    assert texts[0] == texts[1]
    assert set(locked) == {"time", "memory", "everything"}
    assert {"get_current_time", "convert_time"} == set(locked["time"]["tools"])
    assert locked["everything"]["prompts"]
    assert locked["everything"]["resourceTemplates"]


def test_a_check_tells_each_difference_and_changes_nothing() -> None:
    with project() as here:
        place = {"type": "object", "properties": {"place": {"type": "string"}}}
        a = lists(here, tool("keep"), tool("look"), tool("old"), name="a")
        b = lists(here, "echo", name="b")
        configure(here, a=a, b=b)
        assert here.run()[0] == 0
        lists(here, tool("keep"), tool("look", inputSchema=place), tool("more"), name="a")
        configure(here, a=a, b={**b, "args": [*b["args"], "--more"]}, c=lists(here, "echo", name="c"))
        before = here.lock.read_bytes()
        status, out, _ = here.run("--check")
        assert (status, out.splitlines()) == (
            1,
            [
                "a/look: it changed: argument place added",
                "a/more: not in the lock",
                "a/old: only in the lock",
                "b: another command, args or url",
                "c: not in the lock",
                f"5 differences from {here.lock}",
                "To agree, run `mcpd approve` or `mcpd lock --approve`, and commit the file.",
            ],
        )
        assert here.run("--check", "b")[1].startswith("b: another command")
        assert here.lock.read_bytes() == before
        # Nothing is held where everything is trusted.
        assert here.run()[0] == 0
        assert here.check() == (0, [])
        assert here.run()[:2] == (0, f"{here.lock} stays as it was\n")


def test_what_does_not_start_is_named_and_keeps_its_lines_and_the_others_are_locked() -> None:
    with project() as here:
        well, hangs = lists(here, "echo"), scripted(on={"initialize": {"never": True}})
        configure(
            here, well=well, broken={"command": "/no/program"}, hangs={**hangs, "timeouts": {"probe": 600}}
        )
        status, _, notes = here.run("--timeout", "5")
        assert status == 69
        assert "broken is not locked: " in notes
        assert "/no/program" in notes
        assert "tell the user" not in notes, "those are words for models"
        assert "hangs is not locked: no answer within 5 s" in notes
        assert set(here.locked()) == {"well"}
        status, out, notes = here.run("--check", "--timeout", "5", "well", "broken")
        assert (status, "0 differences" in out, "broken is not checked" in notes) == (69, True, True)
        # A difference says more than a server that is away.
        lists(here, "echo", "pid")
        assert here.run("--check", "--timeout", "5", "well", "broken")[0] == 1
        assert here.run("nobody")[0] == 1
        before = here.lock.read_bytes()
        (here.daemon.directory / "script").write_text('{"on": {"start": {"exit": 1}}}')
        assert here.run("--timeout", "20", "well")[0] == 69
        assert here.lock.read_bytes() == before


def test_a_server_without_its_prompts_is_not_locked_and_lines_of_servers_that_are_not_named_stay() -> None:
    greeting = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "prompts": {}},
        "serverInfo": {"name": "scripted", "version": "1"},
    }
    error = {"error": {"code": -32603, "message": "out of prompts"}}
    half = scripted(tools=["echo"], on={"initialize": {"result": greeting}, "prompts/list": error})
    with project() as here:
        a = lists(here, "echo", name="a")
        configure(here, a=a, b=lists(here, "echo", name="b"))
        assert here.run()[0] == 0
        configure(here, a=a, half=half)
        status, _, notes = here.run("half", "a")
        assert (status, "half is not locked: " in notes, "out of prompts" in notes) == (69, True, True), notes
        assert set(here.locked()) == {"a", "b"}


@pytest.mark.parametrize("words", [(), ("--check",)])
def test_faults_of_the_files_are_told_apart(words: tuple[str, ...]) -> None:
    with project(well=scripted(tools=["echo"])) as here:
        here.lock.write_text('{"lockfileVersion": 1, "servers": {}}')
        here.config.write_text('{"mcpServers": {}, "lazy": "yes"}')
        status, _, notes = here.run(*words)
        assert (status, "$.lazy" in notes) == (78, True)
        here.config.write_text('{"mcpServers": {"a": {"comand": "x"}}}')
        status, _, notes = here.run(*words)
        assert (status, "$.mcpServers.a.comand" in notes) == (69, True)
        configure(here, well=scripted(tools=["echo"]))
        for damage in (_truncate, _make_a_pipe, _make_a_directory, _open_to_all, _of_another_version):
            here.lock.write_text('{"lockfileVersion": 1, "servers": {}}')
            damage(here.lock)
            status, _, notes = here.run(*words)
            assert (status, f"{here.lock} cannot be used: " in notes) == (78, True), damage
            here.lock.rmdir() if here.lock.is_dir() else here.lock.unlink()
        status, _, notes = here.run(*words)
        if words:
            assert (status, "there is no " in notes) == (1, True)
        else:
            assert (status, here.lock.exists()) == (0, True)


def _truncate(lock: Path) -> None:
    lock.write_bytes(lock.read_bytes()[:-3])


def _make_a_pipe(lock: Path) -> None:
    lock.unlink()
    os.mkfifo(lock)


def _make_a_directory(lock: Path) -> None:
    lock.unlink()
    lock.mkdir()


def _open_to_all(lock: Path) -> None:
    lock.chmod(0o666)


def _of_another_version(lock: Path) -> None:
    lock.write_text('{"lockfileVersion": 2, "servers": {}}')


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_command_that_was_interrupted(number: signal.Signals) -> None:
    daemon = Daemon(own_directory(), {}, {})
    began = daemon.directory / "began"
    entry = scripted(record=str(began), on={"initialize": {"never": True}})
    daemon.config.write_text(json.dumps({"mcpServers": {"hangs": entry}}))
    environ = {**daemon.environ, "TMPDIR": str(daemon.directory)}
    words = [*MCPD, "lock", "--config", str(daemon.config)]
    with subprocess.Popen(words, cwd=ROOT, env=environ, stderr=subprocess.DEVNULL) as process:
        eventually(lambda: began.exists() and '"start"' in began.read_text())
        process.send_signal(number)
        assert process.wait(WAIT) == (-number if number == signal.SIGKILL else 130)
    eventually(lambda: not left_behind(daemon.directory))


# --- through the daemon that serves the configuration -----------------------------------------------------


@contextmanager
def served(**servers: Any) -> Iterator[Project]:
    with running({"trust": "changes", "mcpServers": servers}) as daemon:
        yield Project(daemon)


def names(daemon: Daemon, server: str) -> set[str]:
    """The tools of a server that clients are offered."""
    return set(daemon.ask("tools", server=server)["tools"])


def test_what_waits_for_approval_is_not_written_before_somebody_agrees() -> None:
    daemon = Daemon(own_directory(), {}, {})
    script = daemon.directory / "script"
    entry = changeable(script, tool("look"))
    daemon.config.write_text(json.dumps({"trust": "changes", "mcpServers": {"a": entry}}))
    with started(daemon):
        here = Project(daemon)
        daemon.ready("a")
        changeable(script, tool("look"), tool("more"))
        daemon.ask("restart", server="a")
        daemon.ready("a")
        # The daemon reads what it did not have to serve yet.
        servers = {"a": entry, "b": scripted(tools=["echo"])}
        daemon.config.write_text(json.dumps({"trust": "changes", "mcpServers": servers}))
        status, out, _ = here.run()
        left = "a: 1 left out until `mcpd approve a` or `mcpd lock --approve a`"
        assert (status, out.splitlines()[1:]) == (0, [left])
        assert here.locked().keys() == servers.keys()
        assert set(here.locked()["a"]["tools"]) == {"look"} == names(daemon, "a")
        assert here.check() == (1, [("a", "new", "more")])
        assert here.run("--approve")[0] == 0
        # The daemon obeys what it wrote: the lock is the approval.
        assert set(here.locked()["a"]["tools"]) == {"look", "more"} == names(daemon, "a")
        assert here.check() == (0, [])
        changeable(script, tool("look", description="Deletes."), tool("more"))
        daemon.ask("restart", server="a")
        daemon.ready("a")
        before = here.lock.read_bytes()
        assert here.run()[0] == 0
        assert (here.lock.read_bytes(), names(daemon, "a")) == (before, {"more"})


def test_a_lock_that_cannot_be_read_is_neither_obeyed_nor_overwritten() -> None:
    with served(a=scripted(tools=["echo"])) as here:
        here.daemon.ready("a")
        os.mkfifo(here.lock)
        assert here.run()[0] == here.run("--check")[0] == 78
        here.daemon.ask("reload")
        assert names(here.daemon, "a") == set()
        assert not here.lock.is_file()
        # It takes the place of the lock between two looks.
        params = {"servers": {"a": {}}, "check": False, "approve": True, "are_all": True, "seconds": WAIT}
        with pytest.raises(RemoteFault, match="not a regular file"):
            here.daemon.ask("lock", **params)
        here.lock.unlink()
        here.lock.write_text('{"lockfileVersion": 1, "servers": {}}')
        here.lock.chmod(0o666)
        with pytest.raises(RemoteFault, match="every user of this machine"):
            here.daemon.ask("lock", **params)
        assert here.lock.read_text() == '{"lockfileVersion": 1, "servers": {}}'


def test_locks_that_are_written_at_the_same_time_lose_nothing() -> None:
    servers = {f"s{number}": scripted(tools=["echo", "pid"]) for number in range(4)}
    with served(**servers) as here:
        here.daemon.ready(*servers)
        assert here.run()[0] == 0
        content = json.loads(here.lock.read_bytes())
        for server in content["servers"].values():
            del server["tools"]["pid"]
        here.lock.write_text(json.dumps(content))
        here.daemon.ask("reload")
        assert names(here.daemon, "s1") == {"echo"}
        with ThreadPoolExecutor() as pool:
            statuses = [status for status, _, _ in pool.map(lambda name: here.run("--approve", name), servers)]
        assert statuses == [0] * len(servers)
        assert not lock_in(here.lock.read_bytes()).problem
        assert all(each["tools"].keys() == {"echo", "pid"} for each in here.locked().values())
        assert here.locked().keys() == servers.keys()
        assert names(here.daemon, "s1") == {"echo", "pid"}


def test_a_daemon_of_another_configuration_is_left_alone() -> None:
    with served(a=scripted(tools=["echo"])) as here:
        here.daemon.ready("a")
        other = here.daemon.directory / "other"
        other.mkdir()
        config = other / "mcpd.json"
        config.write_text(
            json.dumps(
                {"mcpServers": {"b": scripted(tools=["pid"])}, "state": {"url": f"sqlite:///{other}/x.db"}}
            )
        )
        done = here.daemon.outcome("lock", "--config", str(config))
        assert (done.returncode, "no daemon serves" in done.stderr) == (0, True), done.stderr
        assert set(json.loads((other / LOCK).read_bytes())["servers"]) == {"b"}
        assert not here.lock.exists()
        assert not (other / "x.db").exists()
        assert set(here.daemon.ask("status")["servers"]) == {"a"}
