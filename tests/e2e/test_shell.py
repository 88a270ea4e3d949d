"""Agents with a shell: commands that follow a profile, with a real daemon, and exit statuses for scripts."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import whole_server
from tests.e2e.harness import Daemon, changeable, running, scripted
from tests.terminals import Typing
from tests.unit.cases import cases
from tests.waiting import eventually

Json = dict[str, Any]

PATH: Json = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS: list[Json] = [
    {"name": "read", "description": "Reads a file.", "inputSchema": PATH},
    {"name": "write", "description": "Writes a file.", "inputSchema": PATH},
    {"name": "remove", "description": "Removes a file.", "inputSchema": PATH},
]
RULES: list[Json] = [{"match": "fs/remove", "then": "deny"}, {"match": "fs/write", "then": "ask"}]
CONFIG: Json = {
    "mcpServers": {
        "fs": changeable(*TOOLS, "fail", "sleep"),
        "held": {**scripted(tools=["wipe"]), "trust": "none"},
        "whole": {"command": sys.executable, "args": [whole_server.__file__, "whole", "modern"]},
        "gone": {"command": "/nonexistent/mcpd-test"},
    },
    "profiles": {
        "default": {"permissions": RULES},
        "narrow": {"categories": ["whole"]},
        "tools": {"prompts": False, "resources": False},
        "free": {},
    },
}
READ = "whole/mem://whole/a"
PROMPT = "whole/whole_greet"
GREET = ("prompt", PROMPT, "who=you")
SEND = "Send this to mcpd? [Y/n, decline] "


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running(CONFIG) as found:
        found.ready("fs", "held", "whole")
        yield found


def refused(daemon: Daemon, status: int, *words: str) -> str:
    """What a command says on stderr that is refused with this exit status, and prints nothing."""
    done = daemon.outcome(*words)
    assert (done.returncode, done.stdout) == (status, ""), (done.returncode, done.stdout, done.stderr)
    return done.stderr


def records(daemon: Daemon, *words: str) -> list[Json]:
    return [json.loads(line) for line in daemon.run("audit", "--json", *words).splitlines()]


def as_agent(daemon: Daemon, profile: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A command in an environment that names a profile."""
    return daemon.outcome(*words, MCPD_PROFILE=profile)


@cases("words", "said")
def test_what_a_model_of_the_profile_is_denied_the_shell_is_denied(
    daemon: Daemon, words: tuple[str, ...], said: str
) -> None:
    assert said in refused(daemon, 77, *words)


def test_what_a_profile_hides_is_in_no_list_and_no_hint(daemon: Daemon) -> None:
    assert "remove" not in daemon.run("tools")
    assert "remove" not in daemon.run("tools", "fs")
    assert "remove" in daemon.run("tools", "fs", "--as-operator")
    assert "remove" in daemon.run("tools", "fs", "--profile", "free")
    assert set(json.loads(daemon.run("tools", "--profile", "narrow", "--json"))["categories"]) == {"whole"}
    assert json.loads(daemon.run("tools", "fs", "--profile", "narrow", "--json"))["tools"] == {}
    assert "remove" not in refused(daemon, 66, "call", "fs/remov", "path=/x").partition("There are")[2]
    assert "remove" not in refused(daemon, 66, "tools", "remov")
    assert "fs/remove" not in daemon.run("search", "remove a file", check=None)
    assert "fs/remove" in daemon.run("search", "remove a file", "--as-operator")
    assert "wipe" not in daemon.run("search", "wipe", check=None)


def test_a_profile_without_prompts_and_resources_has_none_in_the_shell(daemon: Daemon) -> None:
    assert "there is no prompt" in refused(daemon, 66, "prompt", PROMPT, "--profile", "tools")
    assert "no server has the resource" in refused(daemon, 66, "read", READ, "--profile", "tools")
    assert "no server is known to have" in refused(daemon, 66, "read", "mem://whole/a", "--profile", "tools")
    for words in (GREET, ("read", READ), ("read", "mem://whole/a")):
        for profile in (("--profile", "narrow"), ("--as-operator",), ()):
            assert daemon.run(*words, *profile)


def test_the_environment_names_the_profile_unless_an_option_does(daemon: Daemon) -> None:
    assert as_agent(daemon, "free", "call", "fs/remove", "path=/x").returncode == 0
    assert as_agent(daemon, "free", "call", "fs/remove", "path=/x", "--profile", "default").returncode == 77
    assert as_agent(daemon, "narrow", "search", "file").returncode == 1
    assert as_agent(daemon, "", "call", "fs/remove", "path=/x").returncode == 77
    for words in (("call", "fs/read", "path=/x"), ("tools",), ("search", "x"), ("read", READ), GREET):
        done = as_agent(daemon, "nowhere", *words)
        assert (done.returncode, done.stdout) == (65, ""), done
        assert "no profile is named 'nowhere'" in done.stderr
        assert "default" in done.stderr


def test_a_rule_that_asks_asks_in_the_terminal(daemon: Daemon) -> None:
    for number, status in (("1", 0), ("2", 77)):
        with Typing(daemon, "call", "fs/write", "path=/x") as person:
            shown = person.until("one of them: ")
            assert 'mcpd asks: fs/write wants to run with {"path":"/x"}' in shown
            assert "Rule of profile default: fs/write" in shown
            person.write(number)
            person.until(SEND)
            person.write("y")
            found, shown = person.end()
        assert found == status, shown
    with Typing(daemon, "call", "fs/write", "path=/x") as person:
        person.until("one of them: ")
        person.write("decline")
        found, shown = person.end()
    assert (found, "Do not call it again unless the user asks you to" in shown) == (77, True)


@pytest.mark.parametrize("json_too", [(), ("--json",)])
def test_without_a_terminal_it_is_refused_and_told_what_helps(
    daemon: Daemon, json_too: tuple[str, ...]
) -> None:
    done = daemon.outcome("call", "fs/write", "path=/x", *json_too)
    said = done.stdout if json_too else done.stderr
    assert done.returncode == 77
    assert "there is no terminal to ask in. Nothing was sent." in said
    assert "before the rule that asks, in `permissions` of profile default" in said
    assert "--as-operator" not in said
    with Typing(daemon, "call", "fs/write", "path=/x", "--no-input") as person:
        assert person.end()[0] == 77


def test_an_operator_passes_the_rules_and_not_approval_and_the_audit_says_so(daemon: Daemon) -> None:
    daemon.run("call", "fs/remove", "path=/op", "--as-operator")
    daemon.run("call", "fs/write", "path=/op", "--as-operator")
    assert "waits for an operator's approval" in refused(daemon, 77, "call", "held/wipe", "--as-operator")
    refused(daemon, 77, "call", "fs/remove", "path=/no")
    refused(daemon, 77, "call", "fs/write", "path=/no")
    daemon.run("call", "fs/read", "path=/yes")
    daemon.run("read", READ, "--as-operator")
    refused(daemon, 66, "prompt", "whole/made-up", "--profile", "tools")
    eventually(lambda: any(each["tool"] == "made-up" for each in records(daemon, "whole")), daemon.said)

    def last(*words: str, **members: str) -> Json:
        return [each for each in records(daemon, *words) if members.items() <= each.items()][-1]

    for each in (last("fs/remove", decision="sent"), last("fs/write", decision="sent")):
        assert each["principal"] == f"uid {os.getuid()} (terminal)"
        assert each["details"] == {"asOperator": True}
        assert "rule" not in each
    assert last("held/wipe", decision="refused")["details"] == {"asOperator": True}
    denied, unasked = last("fs/remove", decision="refused"), last("fs/write", decision="refused")
    assert (denied["rule"], denied["outcome"]) == ("default: fs/remove: deny", "ToolDisabled")
    assert (unasked["rule"], unasked["outcome"]) == ("default: fs/write: ask", "PermissionDenied")
    assert last("fs/read", decision="sent")["details"] == {"profile": "default"}
    assert last("whole", decision="sent", method="resources/read")["details"] == {"asOperator": True}
    assert last("whole", decision="refused", method="prompts/get")["details"] == {"profile": "tools"}
    shown = daemon.run("calls", "fs")
    calls = json.loads(daemon.run("calls", "fs", "--json"))["recent"]
    assert [each["rule"] for each in calls[-3:]] == ["default: fs/remove: deny", "default: fs/write: ask", ""]
    assert "default: fs/remove: deny" in " ".join(shown.split())


def test_a_persons_agreement_is_recorded_with_the_question(daemon: Daemon) -> None:
    with Typing(daemon, "call", "fs/write", "path=/agreed") as person:
        person.until("one of them: ")
        person.write("allow once")
        person.until(SEND)
        person.write("")
        assert person.end()[0] == 0

    def found() -> bool:
        known = records(daemon, "fs/write")[-2:]
        decided = [each["decision"] for each in known]
        return decided == ["asked", "sent"] and known[-1].get("by") == known[-1]["principal"]

    eventually(found, daemon.said)


@cases("status", "words")
def test_scripts_tell_failures_apart(daemon: Daemon, status: int, words: tuple[str, ...]) -> None:
    done = daemon.outcome(*words)
    assert done.returncode == status, (done.stdout, done.stderr)
    assert (done.stdout == "") == (status != 0), done


def test_with_json_every_result_is_json_on_stdout(daemon: Daemon) -> None:
    for words in (("call", "fs/read", "path=/x"), ("tools", "fs"), ("search", "file"), ("read", READ), GREET):
        done = daemon.outcome(*words, "--json")
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)


CLIENTS = ("claude-code", "codex", "opencode", "gemini")
PLACES = (
    ".claude/skills/mcpd/SKILL.md",
    ".agents/skills/mcpd/SKILL.md",
    ".config/opencode/skills/mcpd/SKILL.md",
    ".gemini/skills/mcpd/SKILL.md",
)


class Desk:
    """A user with a home directory at a daemon, or without one."""

    def __init__(self, daemon: Daemon, home: Path) -> None:
        self.daemon, self.home = daemon, home
        home.mkdir()
        (home / ".gemini").mkdir()
        (home / ".gemini" / "settings.json").write_text("{}\n")

    def run(self, *words: str, check: int = 0, environ: dict[str, str] | None = None) -> str:
        """Run a command, and return all that it said."""
        own = {"HOME": str(self.home), "XDG_STATE_HOME": str(self.home / ".local" / "state")}
        done = self.daemon.outcome(*words, directory=self.home, **{**own, **(environ or {})})
        assert done.returncode == check, (done.stdout, done.stderr)
        return done.stdout + done.stderr

    @property
    def tree(self) -> dict[str, bytes | None]:
        """Its files and directories but for mcpd's own state."""
        found = (each for each in self.home.rglob("*") if ".local" not in each.parts)
        return {str(each): each.read_bytes() if each.is_file() else None for each in found}


def test_a_skill_is_written_for_each_client_and_taken_out_again(daemon: Daemon, tmp_path: Path) -> None:
    desk = Desk(daemon, tmp_path / "home")
    before, page = desk.tree, desk.run("skill", "show")
    assert "- fs: set_tools, announce, read, write, fail, sleep\n" in page
    assert "remove" not in page
    assert "wipe" not in page
    for been in ("installed", "installed again"):
        assert desk.run("skill", "install", *CLIENTS).count("the skill is in ~/") == 4, been
        assert [(desk.home / each).read_text() for each in PLACES] == [page] * 4
    assert desk.run("skill", "uninstall", *CLIENTS).count("the skill is out of ~/") == 4
    assert desk.tree == before
    assert desk.run("skill", "uninstall", "codex") == "Codex: nothing to do\n"
    assert "name clients that have skills" in desk.run("skill", "install", "cursor", check=2)
    assert "name clients that have skills" in desk.run("skill", "install", check=2)


def test_uninstalling_mcpd_takes_its_skills_and_leaves_changed_ones(daemon: Daemon, tmp_path: Path) -> None:
    desk = Desk(daemon, tmp_path / "home")
    before = desk.tree
    desk.run("skill", "install", "claude-code", "gemini")
    assert desk.run("uninstall", "--all", "--dry-run").count("the skill would be out of ~/") == 2
    assert (desk.home / PLACES[0]).exists()
    assert desk.run("uninstall", "--all").count("the skill is out of ~/") == 2
    assert desk.tree == before
    desk.run("skill", "install", "claude-code", "gemini")
    (desk.home / PLACES[0]).write_text("mine\n")
    said = desk.run("uninstall", "--all", check=1)
    assert "Claude Code: " in said
    assert "is not mcpd's text, so it stays" in said
    assert (desk.home / PLACES[0]).read_text() == "mine\n"
    assert not (desk.home / PLACES[3]).exists()


def test_without_a_daemon_the_configuration_names_the_servers(daemon: Daemon, tmp_path: Path) -> None:
    desk = Desk(daemon, tmp_path / "home")
    nowhere = {"MCPD_CONTROL": str(tmp_path / "none"), "XDG_CONFIG_HOME": str(desk.home / ".config")}
    place = desk.home / ".config" / "mcpd" / "mcpd.json"
    place.parent.mkdir(parents=True)
    entry = {"command": "x", "description": "Reads\n---\nthe `news`."}
    place.write_text(json.dumps({"mcpServers": {"news": entry, "off": {"command": "x", "enabled": False}}}))
    page = desk.run("skill", "show", environ=nowhere)
    assert "\n- news: Reads --- the 'news'.\n" in page
    assert "off" not in page.partition("1. Find")[0].partition("- news")[2]
    place.write_text("{")
    assert "mcpd.json" in desk.run("skill", "install", "codex", check=78, environ=nowhere)
    assert not (desk.home / PLACES[1]).exists()
