"""The configuration is changed by commands before a daemon: what works stays, the rest is taken back."""

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from daemon.host.paths import state_dir
from tests.e2e.harness import Daemon, running
from tests.scripted_server import command
from tests.waiting import PATIENCE, eventually

TOOLS = [
    {"name": name, "description": "In ZONE.", "inputSchema": {"type": "object"}}
    for name in ("get_current_time", "convert_time")
]
CLOCK = (
    "import os, sys; zone = sys.argv[1]; zone.startswith('No') and sys.exit('not a zone: ' + zone);"
    f" words = {command(tools=TOOLS)}; os.execv(words[0], [each.replace('ZONE', zone) for each in words])"
)
"""A server that does not start with every argument."""


def entry(zone: str) -> str:
    return json.dumps({"command": sys.executable, "args": ["-SEc", CLOCK, zone]})


TEXT = f"""{{
  // mine
  "mcpServers": {{
    "time": {entry("UTC")}, // kept
  }},
}}
"""
KEY = "k-83hd82hd8xQ2"


def edited(daemon: Daemon) -> Daemon:
    """The daemon with that configuration, and nothing beside it."""
    daemon.config.write_text(TEXT)
    daemon.config.with_name("env").unlink(missing_ok=True)
    daemon.ask("reload")
    daemon.ready("time")
    return daemon


@pytest.fixture(scope="module")
def lasting() -> Iterator[Daemon]:
    with running({"mcpServers": {}}) as daemon:
        yield daemon


@pytest.fixture
def daemon(lasting: Daemon) -> Daemon:
    """One for all tests, as it was."""
    return edited(lasting)


@pytest.fixture
def fresh() -> Iterator[Daemon]:
    """One whose server has not run before."""
    with running({"mcpServers": {}}) as daemon:
        yield edited(daemon)


def told(daemon: Daemon, *words: str, given: str = "") -> tuple[int, str]:
    """The exit status of a command, and everything that it says."""
    done = daemon.outcome(*words, "--config", str(daemon.config), given=given)
    return done.returncode, done.stdout + done.stderr


def test_a_key_is_set_and_removed_and_taken_back_where_the_server_cannot_run_with_it(daemon: Daemon) -> None:
    status, said = told(daemon, "set", "time", "args[2]=Europe/Berlin", f"env.API_TOKEN={KEY}")
    assert (status, "time is ready: 2 tools" in said, KEY in said) == (0, True, False), said
    assert "Europe/Berlin" in daemon.run("tools", "time/get_current_time")
    kept, env = daemon.config.read_text(), daemon.config.with_name("env").read_text()
    status, said = told(daemon, "set", "time", "args[2]=No/Where", f"env.API_TOKEN=other-{KEY}")
    assert (status, "taken back" in said, "No/Where" in said) == (1, True, True), said
    assert (daemon.config.read_text(), daemon.config.with_name("env").read_text()) == (kept, env)
    assert daemon.ask("status")["servers"]["time"]["state"] == "ready"
    status, said = told(daemon, "set", "time", "args[2]=No/Where", "--keep")
    assert (status, "the change stays" in said) == (1, True), said
    # It is down, so another fault is none of this change's.
    status, said = told(daemon, "unset", "time", "env.API_TOKEN")
    assert (status, "the change stays" in said) == (1, True), said
    assert "API_TOKEN" not in daemon.config.read_text()
    status, said = told(daemon, "set", "time", "args[2]=UTC")
    assert (status, daemon.config.read_text()) == (0, TEXT), said


@pytest.mark.parametrize(
    ("ending", "keep"),
    [(signal.SIGINT, False), (signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGHUP, False)],
)
def test_who_does_not_wait_for_a_change_has_it_taken_back_unless_it_is_to_be_kept(
    daemon: Daemon, ending: signal.Signals, *, keep: bool
) -> None:
    words = ["set", "time", "command=sleep", 'args=["600"]', "--config", str(daemon.config)]
    with subprocess.Popen(
        daemon.command(*words, *(["--keep"] if keep else [])),
        env=daemon.environ,
        stderr=subprocess.PIPE,
        text=True,
    ) as waiting:
        eventually(lambda: daemon.ask("status")["servers"]["time"]["state"] == "starting")
        waiting.send_signal(ending)
        _, said = waiting.communicate(timeout=PATIENCE)
    assert (waiting.returncode, "taken back" in said, "the change stays" in said) == (130, not keep, keep), said
    assert (daemon.config.read_text() == TEXT) is not keep
    if not keep:
        daemon.ready("time")


def test_the_lines_of_a_server_stay_when_its_entry_changes_and_explain_only_their_own_runs(
    fresh: Daemon,
) -> None:
    daemon = fresh
    words = [
        "set",
        "time",
        "command=sh",
        'args=["-c", "echo of the former >&2; exec sleep 600"]',
        "--no-reload",
    ]
    assert told(daemon, *words)[0] == 0
    daemon.ask("reload")
    eventually(lambda: daemon.ask("logs", server="time")["lines"])
    daemon.config.write_text(TEXT)
    daemon.ask("reload")
    daemon.ready("time")
    assert "of the former" in daemon.run("logs", "time")
    assert daemon.ask("status")["servers"]["time"]["stderr"] == []
    daemon.run("call", "time/get_current_time", "timezone=UTC")
    for switch in ("enabled=false", "enabled=true"):
        assert told(daemon, "set", "time", switch, "--no-reload")[0] == 0
        daemon.ask("reload")
    daemon.ready("time")
    assert "of the former" in daemon.run("logs", "time")
    seen = daemon.ask("status")["servers"]["time"]
    assert (seen["calls"], seen["stderr"]) == (1, [])


def test_what_a_killed_command_has_not_tried_is_told_with_the_way_back_until_it_is_changed(
    daemon: Daemon,
) -> None:
    words = ["set", "time", "command=sleep", 'args=["600"]', "--config", str(daemon.config)]
    with subprocess.Popen(daemon.command(*words), env=daemon.environ, stderr=subprocess.DEVNULL) as waiting:
        eventually(lambda: daemon.ask("status")["servers"]["time"]["state"] == "starting")
        assert "was killed" not in daemon.outcome("status").stderr
        waiting.kill()
    told, said = "mcpd: time: `mcpd set` was killed while it tried a change; undo: `mcpd set time command=", ""
    for line in (("status",), ("set", ".", "lazy=false"), ("status",)):
        said = daemon.outcome(*line).stderr
        assert told in said, said
    done = daemon.outcome(*shlex.split(said.partition("undo: `mcpd ")[2].partition("`\n")[0]))
    assert (done.returncode, daemon.ask("status")["servers"]["time"]["state"]) == (0, "ready"), done
    assert "was killed" not in daemon.outcome("status").stderr


def test_a_server_that_goes_back_to_an_earlier_entry_is_listed_again(daemon: Daemon) -> None:
    assert told(daemon, "set", "time", "share=workspace")[0] == 0
    for zone in ("Europe/Berlin", "UTC", "Europe/Berlin"):
        status, said = told(daemon, "set", "time", f"args[2]={zone}")
        assert (status, "2 tools" in said) == (0, True), said


def test_a_whole_entry_is_tried_and_taken_back_where_the_server_cannot_run_with_it(daemon: Daemon) -> None:
    status, said = told(daemon, "set", "time", "-", given=entry("Europe/Berlin"))
    assert (status, "time is ready: 2 tools" in said) == (0, True), said
    assert daemon.config.read_text() == (kept := TEXT.replace("UTC", "Europe/Berlin"))
    assert "Europe/Berlin" in daemon.run("tools", "time/get_current_time")
    status, said = told(daemon, "set", "time", "-", given=entry("No/Where"))
    assert (status, "taken back" in said, daemon.config.read_text()) == (1, True, kept), said


def test_a_server_has_another_name_everywhere_and_runs_on(daemon: Daemon) -> None:
    profiles = '"profiles": {"reader": {"preload": ["time/get_current_time"]}},\n}'
    daemon.config.write_text(TEXT.removesuffix("}\n") + profiles)
    daemon.ask("reload")
    checked = daemon.run("check", str(daemon.config))
    status, said = told(daemon, "rename", "time", "clock")
    assert (status, "clock is ready: 2 tools" in said, "stay behind" in said) == (0, True, True), said
    assert daemon.config.read_text() == TEXT.replace('"time"', '"clock"').removesuffix(
        "}\n"
    ) + profiles.replace("time/", "clock/")
    assert [*daemon.ask("status")["servers"]] == ["clock"]
    assert "UTC" in daemon.run("tools", "clock/get_current_time")
    assert daemon.run("check", str(daemon.config)) == checked
    # As a rename that was killed leaves it: nobody holds the lock.
    mark = state_dir(daemon.environ) / "trials" / "clock"
    mark.write_text("clock: `mcpd rename` was killed")
    assert "`mcpd rename` was killed" in daemon.outcome("status").stderr
    assert (told(daemon, "rename", "clock", "time")[0], mark.exists()) == (0, False)


def test_a_key_of_the_whole_configuration_is_applied(daemon: Daemon) -> None:
    status, said = told(daemon, "set", ".", "lazy=false", "limits.starts=9")
    assert status == 0, said
    assert "applied: lazy; unchanged: 1; needs a new start: limits" in said
    assert daemon.run("lazy").startswith("lazy off")
    status, said = told(daemon, "unset", ".", "lazy", "--json")
    assert (status, '"sections": [' in said) == (0, True), said


@pytest.mark.parametrize("key", ['"enabled": false', '"disabled": true'])
def test_what_the_configuration_has_off_is_switched_on_there(key: str, daemon: Daemon) -> None:
    off = TEXT.replace('{"command"', f'{{{key}, "env": {{"A": "${{MISSING_HERE}}"}}, "command"')
    daemon.config.write_text(off)
    daemon.ask("reload")
    status, said = told(daemon, "enable", "time")
    assert (status, "MISSING_HERE" in said, daemon.config.read_text()) == (78, True, off), said
    # The daemon's words for those who name no file.
    done = daemon.outcome("enable", "time")
    assert (done.returncode, f"`mcpd enable time --config {daemon.config}`" in done.stderr) == (1, True), done
    daemon.config.with_name("env").write_text("MISSING_HERE=1\n")
    daemon.config.with_name("env").chmod(0o600)
    status, said = told(daemon, "enable", "time")
    assert (status, f"{daemon.config} has time off" in said, "time is ready" in said) == (0, True, True), said
    other = {'"enabled": false': '"enabled": true', '"disabled": true': '"disabled": false'}[key]
    assert daemon.config.read_text() == off.replace(key, other)
    status, said = told(daemon, "enable", "time")
    assert (status, "was switched on already" in said) == (0, True), said
