"""Scripts that stay: files next to the configuration that are tools of the profiles that name them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.harness import Daemon, RawClient, changeable, own_directory, started
from tests.scripted_server import tool
from tests.waiting import eventually

ADDS = '"""Adds two numbers."""\n\nasync def main(a: int, b: int = 2) -> int:\n    return a + b\n'
OTHER = ADDS.replace("a + b", "a - b")
CALLS = '''"""Looks, and says what it saw."""
from typing import Literal

async def main(place: str, *, how: Literal["once", "twice"] = "once") -> list[str]:
    looks = ["notes/look"] * (1 if how == "once" else 2)
    return [await call(each, {"place": place}) for each in looks]
'''
NESTED = '"""Asks another."""\nasync def main() -> int:\n    return await call("script/adds", {"a": 1})\n'


def ruled(match: str, then: str) -> dict[str, Any]:
    """A profile with all scripts and one rule."""
    return {"scripts": ["*"], "permissions": [{"match": match, "then": then}]}


CONFIG: dict[str, Any] = {
    "mcpServers": {"notes": changeable(tool("look", description="Looks."))},
    "profiles": {
        "default": {},
        "mine": {"scripts": ["adds"]},
        "everything": {"scripts": ["*"]},
        "asks": ruled("notes/look", "ask"),
        "bound": ruled("notes/look", "deny"),
        "denied": ruled("script/adds", "deny"),
    },
}
SURFACES = ("category", "browse", "search", "load", "full", "code")


def write(daemon: Daemon, **texts: str) -> None:
    """Write scripts next to its configuration."""
    folder = daemon.directory / "scripts"
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)


@contextmanager
def scripted(config: Mapping[str, Any] = CONFIG, **texts: str) -> Iterator[Daemon]:
    """A daemon with these scripts from its start."""
    daemon = Daemon(own_directory(), config, {})
    write(daemon, **texts)
    with started(daemon):
        daemon.ready()
        yield daemon


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """For tests that leave its scripts as they were."""
    with scripted(adds=ADDS, looks=CALLS, nested=NESTED) as daemon:
        yield daemon


@contextmanager
def model(daemon: Daemon, profile: str = "mine", surface: str = "full", **said: Any) -> Iterator[RawClient]:
    """A client of a profile and a surface that has shaken hands."""
    with daemon.client().hello(profile=profile, surface=surface, **said) as client:
        client.greet()
        yield client


def told(client: RawClient) -> str:
    """All that a search, or a list, on a surface tells a model."""
    said = json.dumps(client.ask("tools/list"))
    for name, arguments in (
        ("get-category-tools", {"category": "script"}),
        ("get_tools", {"category": "script"}),
        ("search_tools", {"query": "adds two numbers"}),
        ("load_mcp_server", {"name": "adds two numbers"}),
        ("describe_tools", {"names": ["script/adds"]}),
    ):
        said += json.dumps(client.call(name, arguments)["content"])
    return said


def value(result: dict[str, Any]) -> Any:
    """What a script gave."""
    return result["structuredContent"]["result"]


def error(result: dict[str, Any]) -> Any:
    """The error in a result."""
    assert result["isError"], result
    return result["structuredContent"]["error"]


def call_on(surface: str, client: RawClient) -> dict[str, Any]:
    """Call the script as a model would on a surface."""
    if surface == "category":
        return client.run("script", "adds", a=1)
    if surface == "code":
        return client.call("run_code", {"code": "(await call('script/adds', {'a': 1}))['result']"})
    if surface == "load":
        client.call("load_mcp_tool", {"names": ["script/adds"]})
    if surface in {"load", "full"}:
        return client.call("script/adds", {"a": 1})
    return client.call("call_tool", {"tool_name": "script/adds", "arguments": {"a": 1}})


@pytest.mark.parametrize("surface", SURFACES)
def test_a_script_is_told_and_called_by_profiles_that_name_it_and_by_no_other(
    daemon: Daemon, surface: str
) -> None:
    for profile in ("mine", "everything"):
        with model(daemon, profile, surface) as client:
            assert "Adds two numbers" in told(client)
            assert value(call_on(surface, client)) == 3
    with daemon.client().hello(profile="default", surface=surface) as client:
        said = json.dumps(client.greet()) + json.dumps(client.ask("tools/list"))
        assert ("own scripts" in said, "script:" in said) == (False, False), "not even the category"
        assert "Adds two numbers" not in told(client)
        said = json.dumps(error(call_on(surface, client)))
        assert "UnknownTool" in said or "ToolDisabled" in said or "UnknownCategory" in said


def test_a_script_is_listed_as_what_it_is(daemon: Daemon) -> None:
    with model(daemon) as client:
        (listed,) = [each for each in client.ask("tools/list")["result"]["tools"] if each["name"] == "adds"]
        assert listed["description"] == "Adds two numbers."
        assert listed["inputSchema"] == {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 2}},
            "required": ["a"],
            "additionalProperties": False,
        }
        assert "adds" in daemon.run("tools", "script", "--profile", "mine")
        assert "adds" not in daemon.run("tools", "script", check=None)
        assert daemon.status()["servers"]["script"]["type"] == "script"
        found = json.loads(daemon.run("doctor", "--json", check=None))["findings"]
        said = [each["cause"] for each in found if each["what"].startswith("script: ")]
        assert said == ["server-sound"]


def test_a_broken_script_is_told_and_costs_no_other() -> None:
    with scripted(adds=ADDS, broken="def main(:\n") as daemon:
        fault = "line 1, column 10: scripts/broken.py: invalid syntax"
        assert fault in daemon.said()
        checked = daemon.outcome("check", str(daemon.config))
        assert (checked.returncode, fault in checked.stderr) == (78, True)
        with model(daemon, "everything") as client:
            assert "adds" in client.listed()
            write(daemon, adds=ADDS.replace("two", "both"), later=OTHER)
            assert daemon.run("reload").splitlines()[-1] == f"left out: {fault}"
            daemon.ready()
            write(daemon, broken=ADDS)
            assert "left out" not in daemon.run("reload")
            daemon.ready()
            assert {"adds", "broken", "later"} <= {*client.listed()}
            (daemon.directory / "scripts" / "adds.py").unlink()
            assert "scripts/adds.py: cannot be read: No such file or directory" in daemon.run("reload")
            daemon.ready()
            assert "adds" not in client.listed()


PARTS = {"adds": ("a=1",), "looks": ("place=x",)}


def test_a_profile_that_names_no_script_sees_none_as_the_server_itself(daemon: Daemon) -> None:
    for profile, listed in (("mine", ["adds"]), ("default", [])):
        with daemon.client().hello(profile=profile, servers=["script"]) as client:
            client.greet()
            assert client.listed() == listed
            assert client.call("adds", {"a": 1})["isError"] is (profile == "default")


def test_a_changed_script_waits_for_approval_and_what_runs_is_what_was_approved() -> None:
    with (
        scripted({**CONFIG, "trust": "changes"}, adds=ADDS) as daemon,
        model(daemon) as client,
    ):
        assert value(client.call("adds", {"a": 1})) == 3
        write(daemon, adds=OTHER)
        daemon.run("reload")
        daemon.ready()
        assert error(client.call("adds", {"a": 1}))["code"] == "ToolHeld"
        assert "adds" not in client.listed()
        line = "script/adds  it changed: _meta"
        assert daemon.run("approve").splitlines()[0] == line
        assert daemon.run("approve", "script/adds").splitlines() == [f"approved {line}"]
        client.listed()
        assert value(client.call("adds", {"a": 1})) == -1
        write(daemon, adds=ADDS)
        daemon.run("reload")
        daemon.ready()
        client.listed()
        assert value(client.call("adds", {"a": 1})) == 3, "the first form is still approved"
        # A lock holds it as it does other tools.
        daemon.run("lock", "--config", str(daemon.config))
        write(daemon, adds=ADDS.replace("a + b", "a * b"))
        daemon.run("reload")
        daemon.ready()
        assert error(client.call("adds", {"a": 1}))["code"] == "ToolHeld"
        checked = daemon.run("lock", "--check", "--config", str(daemon.config), check=1)
        assert checked.splitlines()[0] == "script/adds: it changed: _meta"


def test_a_watched_configuration_follows_its_scripts() -> None:
    with (
        scripted({**CONFIG, "watch": True}, adds=ADDS) as daemon,
        model(daemon, "everything") as client,
    ):
        write(daemon, later=ADDS)
        eventually(lambda: "later" in client.listed(), daemon.said)


def test_a_script_is_called_from_a_shell_by_the_rules_of_a_profile(daemon: Daemon) -> None:
    assert daemon.run("call", "script/adds", "a=1", "--profile", "mine") == "3\n"
    done = json.loads(daemon.run("call", "script/looks", "place=x", "--profile", "everything", "--json"))
    assert (len(value(done)), done["structuredContent"]["calls"]) == (1, 1)
    # Its own rules, its calls' rules, and no rules at all.
    for name, words, status, said in (
        ("adds", (), 66, "UnknownTool"),
        ("looks", ("--profile", "asks"), 1, "PermissionDenied"),
        ("adds", ("--as-operator",), 2, "name one with --profile"),
        ("adds", ("--profile", "nobody"), 65, "nobody"),
        ("adds", ("b=x", "--profile", "mine"), 65, "b: "),
    ):
        failed = daemon.outcome("call", f"script/{name}", *PARTS[name], *words)
        assert (failed.returncode, said in failed.stderr) == (status, True), failed


def test_arguments_of_a_script_that_are_too_long_or_cannot_be_read_are_refused(daemon: Daemon) -> None:
    with model(daemon) as client:
        assert "limit" in error(client.call("adds", {"a": "1" * 300_000})), "before they are decoded"
        params = b'{"name":"adds","arguments":{"a":1e400}}'
        client.send(b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":%b}' % params)
        assert error(client.receive()["result"])["code"] == "InvalidArguments"


def test_the_audit_has_the_call_of_a_script_with_its_text(daemon: Daemon) -> None:
    with model(daemon, "everything", session="audited") as client:
        assert len(value(client.call("looks", {"place": "x"}))) == 1
        assert client.call("looks", {})["isError"]

        def recorded() -> list[Any]:
            words = ("audit", "--decision", "sent", "--decision", "refused", "--json")
            records = map(json.loads, daemon.run(*words).splitlines())
            return [each for each in records if each.get("session") == "audited"]

        eventually(lambda: len(recorded()) == 3, daemon.said)
        found = sorted(recorded(), key=lambda each: each["seq"])
        assert [(each["server"], each["tool"], each["outcome"]) for each in found] == [
            ("notes", "look", "ok"),
            ("script", "looks", "ok"),
            ("script", "looks", "InvalidArguments"),
        ]
        assert len({each["details"]["script"] for each in found[:2]}) == 1


def test_inside_a_script_the_permissions_of_its_caller_hold(daemon: Daemon) -> None:
    with model(daemon, "everything") as client:
        assert len(value(client.call("looks", {"place": "x", "how": "twice"}))) == 2
        missing = error(client.call("looks", {}))
        assert (missing["code"], "place" in json.dumps(missing)) == ("InvalidArguments", True)
    with model(daemon, "bound") as client:
        assert "ToolError" in json.dumps(error(client.call("looks", {"place": "x"})))


def test_a_script_that_is_denied_or_switched_off_is_not_run(daemon: Daemon) -> None:
    with model(daemon, "denied") as client:
        assert "adds" not in client.listed()
        assert client.call("adds", {"a": 1})["isError"]
    with model(daemon) as client:
        daemon.run("disable", "script/adds")
        assert error(client.call("adds", {"a": 1}))["code"] == "ToolDisabled"
        daemon.run("enable", "script/adds")
        assert value(client.call("adds", {"a": 1})) == 3


def test_a_script_that_is_a_tool_calls_no_other(daemon: Daemon) -> None:
    with model(daemon, "everything") as client:
        failed = error(client.call("nested", {}))
        assert failed["code"] == "ScriptFailed"
        assert "only a client's session can run this script" in failed["message"]
        assert value(client.call("adds", {"a": 1})) == 3


def test_scripts_that_wait_for_one_that_is_a_tool_leave_it_a_place(daemon: Daemon) -> None:
    code = "(await call('script/adds', {'a': 1}))['result']"
    asked = {"name": "run_code", "arguments": {"code": code}}
    with model(daemon, surface="code") as client:
        # More than there are places: each has taken one before it calls.
        for number in range(100, 109):
            client.send(
                json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": asked}).encode()
            )
        answers = [client.receive() for _ in range(9)]
        assert [value(each["result"]) for each in answers] == [3] * 9
