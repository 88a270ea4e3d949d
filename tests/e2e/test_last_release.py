"""Commands of this release against the daemon of the last one, and the other way round (`last_release`)."""

import json
from pathlib import Path
from typing import Any

import pytest

from daemon.cli import control
from daemon.cli.table import help_table
from tests.e2e.forking import FORKS
from tests.e2e.harness import ROOT, serving
from tests.e2e.last_release import CONFIG, SAYS_SO, WORKS, Replay, listening, recorded

Json = dict[str, Any]

RESTART = "`mcpd start --restart`"
RAW = ("Traceback", "Method not found", "Error: '")

ELSEWHERE = {
    *(
        "import",
        "install",
        "uninstall",
        "clients",
        "purge",
        "skill",
        "secret",
        "service",
        "completions",
        "start",
    ),
    *("stop", "run", "connect", "version", "schema", "check"),
    "doctor",  # asks for `status`, and looks at this machine
    # They change files, and ask what `set` and `status` ask.
    *("up", "add", "edit", "unset", "rename", "pin", "upgrade", "allow-host"),
}
"""Commands that ask the daemon nothing, or nothing of their own."""


def ran(words: str, directory: Path) -> tuple[int, str, str]:
    """What a command of today says to the last release's daemon."""
    said = recorded(directory)["today"]
    others = [each for exchanges in said.values() for each in exchanges]
    replay = Replay(directory / "link", directory, own=[*said.get(words, [])], others=others)
    config = directory / "mcpd.json"
    config.write_text(json.dumps(CONFIG))
    own = {"HOME": str(directory), "XDG_STATE_HOME": str(directory), "MCPD_CONFIG": str(config)}
    with listening(replay):
        done = FORKS.run(
            words.split(), {"PATH": "/usr/bin:/bin", "MCPD_CONTROL": str(replay.path), **own}, ROOT
        )
    assert replay.said, "it asked nothing"
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("words", WORKS)
def test_a_command_works_with_the_daemon_of_the_last_release(words: str, sockets: Path) -> None:
    status, out, err = ran(words, sockets)
    assert (status, RESTART in err) == (WORKS[words], False), (out, err)
    assert not any(raw in out + err for raw in RAW)


@pytest.mark.parametrize("words", SAYS_SO)
def test_a_command_that_it_cannot_serve_names_the_one_that_restarts_it(words: str, sockets: Path) -> None:
    status, out, err = ran(words, sockets)
    assert (status, [line for line in out.splitlines() if not line.startswith("undo: ")]) == (1, []), err
    assert f"{RESTART} restarts the daemon." in err
    assert not any(raw in err for raw in RAW)


@pytest.mark.parametrize(
    ("words", "status"), [("call one/one_echo name=x --profile reader", 1), ("set one sandbox=home", 0)]
)
def test_what_it_would_ignore_is_not_taken_for_done(words: str, status: int, sockets: Path) -> None:
    done, _out, err = ran(words, sockets)
    assert (done, f"{RESTART} restarts the daemon." in err) == (status, True), err


def test_every_command_is_tried() -> None:
    tried = {words.split()[0] for words in (*WORKS, *SAYS_SO)}
    assert not set(" ".join(help_table()["groups"].values()).split()) - tried - ELSEWHERE


CHANGES = {"lives", "poll"}
"""A daemon's own names for its lives, and a tool for apps alone, which 0.1.0 showed."""


def lacks(new: Any, old: Any, path: str = "") -> list[str]:
    """What an answer of the last release had, and one of today has not."""
    if isinstance(old, list) and isinstance(new, list):
        return lacks(new[0], old[0], f"{path}[0]") if old and new else []
    if not isinstance(old, dict) or new is None:
        return []
    if not isinstance(new, dict):
        return [path]
    return [
        missing
        for key, value in old.items()
        if key not in CHANGES
        for missing in (lacks(new[key], value, f"{path}.{key}") if key in new else [f"{path}.{key}"])
    ]


def test_the_commands_of_the_last_release_are_answered_as_they_expect() -> None:
    with serving(CONFIG) as daemon:
        wrong = []
        for words, exchanges in recorded(daemon.directory)["release"].items():
            for each in exchanges:
                asked = f"{words}: {each['method']}"
                try:
                    answer = daemon.ask(each["method"], **each["params"])
                except control.RemoteFault as fault:
                    if "result" in each or fault.code == -32603 or f"{RESTART} restarts" in str(fault):
                        wrong.append(f"{asked}: {fault}")
                else:
                    wrong += [f"{asked}: {path}" for path in lacks(answer, each.get("result", {}))]
            daemon.config.write_text(json.dumps(CONFIG))
            daemon.ask("reload")
            for name in ("one", "one/one_echo"):
                daemon.ask("switch", name=name, off=False)
            daemon.ready()
        assert not wrong, "\n".join(wrong)
