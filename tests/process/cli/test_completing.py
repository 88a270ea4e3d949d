"""Completion, asked for by the shells themselves with the scripts that `mcpd completions` prints."""

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon.cli.completing import LONGEST_SECONDS, MOST_NAMES
from tests.unit.cli.daemons import SILENCE, environment, fake_control, server, status_of
from tests.waiting import run_to_end

BASH = """
set -e
source <(mcpd completions bash)
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9 COMP_CWORD=2 COMP_WORDS=($1)
_python_argcomplete mcpd
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
autoload -U compinit && compinit -D
eval "$(mcpd completions zsh)"
_describe() { print -l -- "${completions[@]%%:*}" }
BUFFER=$1 CURSOR=${#1} words=(mcpd)
_python_argcomplete
"""
FISH = """
mcpd completions fish | source
complete -C $argv[1] | string replace -r '\\t.*' ''
"""

SHELLS = {"bash": ["-c", BASH, "bash"], "zsh": ["-fc", ZSH, "zsh"], "fish": ["--no-config", "-c", FISH]}
"""Each shell's arguments before the line to complete; those that this machine lacks are left out."""
PRESENT = [shell for shell in SHELLS if shutil.which(shell)]

TOOLS = ("git_log", "git_diff")
ANSWERS: dict[str, Any] = {
    "status": status_of({"git": server(instances=[{"name": "git#3"}]), "github": server(instances=[])}),
    "tools": {"categories": {"code": {"tools": {each: {"server": "git", "tool": each} for each in TOOLS}}}},
    "prompts": {"prompts": [{"server": "git", "name": "review"}]},
    "resources": {"resources": [{"server": "git", "uri": "docs://one"}]},
    "sessions": {"sessions": [{"key": "/home/me/app"}, {"key": "#4"}]},
}
ANSWERS["status"]["servers"]["git"]["held"] = {"prompt:review": {}}
ANSWERS["status"]["daemon"]["surfaces"] = {"default": "auto", "reader": "browse"}


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with nothing of the tester's, and this tree's mcpd."""
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    return environment(HOME=str(tmp_path), PATH=path, MCPD_CONTROL=str(tmp_path / "none"))


def asked(environ: dict[str, str], line: str, shell: str = "bash") -> list[str]:
    """What a shell offers at the end of a line."""
    done = run_to_end([shell, *SHELLS[shell], line], env=environ, cwd=environ["HOME"])
    assert not done.stderr
    return sorted(word.strip() for word in done.stdout.splitlines() if word.strip())


@pytest.fixture
def daemon(sockets: Path, home: dict[str, str]) -> Iterator[Callable[..., list[str]]]:
    """Completes lines beside a daemon with `ANSWERS`."""
    path = sockets / "control.sock"
    with fake_control(path, ANSWERS):
        yield lambda line, shell="bash": asked({**home, "MCPD_CONTROL": str(path)}, line, shell)


@pytest.mark.parametrize("shell", PRESENT)
def test_each_shell_completes_commands_options_and_names_of_the_running_daemon(
    daemon: Callable[..., list[str]], shell: str
) -> None:
    assert daemon("mcpd resta", shell) == ["restart"]
    assert daemon("mcpd restart --ti", shell) == ["--timeout"]
    assert daemon("mcpd restart gi", shell) == ["git", "git#3", "github"]
    assert daemon("mcpd call git/", shell) == ["git/git_diff", "git/git_log"]


def test_every_kind_of_name_is_completed(daemon: Callable[..., list[str]]) -> None:
    assert daemon("mcpd approve ") == ["git", "git/prompt:review", "github"]
    assert daemon("mcpd disable ") == ["git", "git/git_diff", "git/git_log", "github"]
    assert daemon("mcpd tools ") == ["git", "git/git_diff", "git/git_log", "github"]
    assert daemon("mcpd tools --profile ") == ["default", "reader"]
    assert daemon("mcpd tools --surface b") == ["browse"]
    assert daemon("mcpd prompt ") == ["git/review"]
    assert daemon("mcpd sessions /") == ["/home/me/app"]
    assert daemon("mcpd connect --server ") == ["git", "github"]
    assert daemon("mcpd completions ") == ["bash", "fish", "zsh"]


def test_files_are_completed_where_a_file_is_asked_for(home: dict[str, str]) -> None:
    Path(home["HOME"], "mcpd.json").touch()
    assert asked(home, "mcpd check mc") == ["mcpd.json"]


def test_names_that_no_terminal_can_show_or_nobody_reads_are_left_out_and_a_daemon_that_hangs_is(
    sockets: Path, home: dict[str, str]
) -> None:
    servers = {"g\x1b]0;evil\x07": server(), "g\nrm -rf ~": server(), "good": server(), "g$(reboot)": server()}
    tools = {f"tool_{number}": {"server": "big", "tool": f"tool_{number}"} for number in range(MOST_NAMES + 10)}
    answers = {
        "status": status_of(servers),
        "tools": {"categories": {"all": {"tools": tools}}},
        "sessions": SILENCE,
    }
    environ = {**home, "MCPD_CONTROL": str(sockets / "control.sock")}
    with fake_control(sockets / "control.sock", answers):
        assert asked(environ, "mcpd logs g") == ["g\\$\\(reboot\\)", "good"]
        assert len(asked(environ, "mcpd call big/")) == MOST_NAMES
        # Without a bound this would wait for ever.
        assert asked(environ, "mcpd sessions ") == []
    assert LONGEST_SECONDS <= 1
