"""Scripts that stay: files next to the configuration that are tools of the profiles that name them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.harness import Daemon, changeable, own_directory, started
from tests.scripted_server import tool

ADDS = '"""Adds two numbers."""\n\nasync def main(a: int, b: int = 2) -> int:\n    return a + b\n'
OTHER = ADDS.replace("a + b", "a - b")
CONFIG: dict[str, Any] = {
    "mcpServers": {"notes": changeable(tool("look", description="Looks."))},
    "profiles": {"default": {}, "mine": {"scripts": ["adds"]}, "everything": {"scripts": ["*"]}},
}
SURFACES = ("category", "browse", "search", "load", "full")


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


def names(daemon: Daemon, profile: str, surface: str) -> set[str]:
    """The tools of a profile that a search, or a list, on a surface tells a model."""
    with daemon.client().hello(profile=profile, surface=surface) as client:
        said = json.dumps(client.greet()) + json.dumps(client.ask("tools/list"))
        for name, arguments in (
            ("get-category-tools", {"category": "script"}),
            ("get_tools", {"category": "script"}),
            ("search_tools", {"query": "adds two numbers"}),
            ("load_mcp_server", {"name": "adds two numbers"}),
        ):
            said += json.dumps(client.call(name, arguments)["content"])
    return {each for each in ("Adds two numbers", "Looks.") if each in said}


@pytest.mark.parametrize("surface", SURFACES)
def test_a_script_is_a_tool_of_profiles_that_name_it_and_of_no_other(surface: str) -> None:
    with scripted(adds=ADDS) as daemon:
        for profile in ("mine", "everything"):
            assert "Adds two numbers" in names(daemon, profile, surface)
        assert "Adds two numbers" not in names(daemon, "default", surface)


def test_a_script_is_listed_as_what_it_is() -> None:
    with scripted(adds=ADDS) as daemon, daemon.client().hello(profile="mine", surface="full") as client:
        client.greet()
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
        assert daemon.run("doctor", "--json", check=None)


def test_a_broken_script_is_told_and_costs_no_other() -> None:
    with scripted(adds=ADDS, broken="def main(:\n") as daemon:
        fault = "line 1, column 10: scripts/broken.py: invalid syntax"
        assert fault in daemon.said()
        checked = daemon.outcome("check", str(daemon.config))
        assert (checked.returncode, fault in checked.stderr) == (78, True)
        with daemon.client().hello(profile="everything", surface="full") as client:
            client.greet()
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
