"""The keys of a sandbox: VS Code's words, one word, defaults, and what they come to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from daemon.config.config_model import WORKSPACE, Server
from daemon.config.parse import parse
from daemon.config.sandbox_keys import SandboxMode, SandboxRules
from daemon.errors import ConfigError
from tests.unit.cases import cases


def server(entry: dict[str, Any], **top: Any) -> Server:

    text = json.dumps({"mcpServers": {"s": {"command": "node", **entry}}, **top})
    return parse(text, source="/etc/x.json", environ={"HOME": "/h"}).mcp_servers["s"]


@cases("entry", "top", "expected")
def test_a_sandbox_in_force(entry: dict[str, Any], top: dict[str, Any], expected: list[object] | None) -> None:
    """VS Code allows no host but the package registry, and an object alone must not be an open door."""
    rules = server(entry, **top).confined
    assert (rules and [rules.mode, [*rules.hosts]]) == expected


@cases("entry", "path", "message")
def test_a_faulty_sandbox_is_named_at_its_place(entry: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        server(entry)
    fault = caught.value.faults[0]
    assert (fault.path.endswith(path), message in fault.message) == (True, True), fault


def test_paths_may_begin_at_home_and_in_the_workspace() -> None:
    files = {"allowWrite": ["~/notes", "${workspace}/out", "rel"], "denyRead": ["${HOME}/x"]}
    made = server({"sandbox": {"filesystem": files}})
    assert made.confined is not None
    assert made.confined.filesystem.allow_write == ("/h/notes", f"{WORKSPACE}/out", "rel")
    assert made.confined.filesystem.deny_read == ("/h/x",)
    assert made.shared_by == "workspace"
    instance = made.rewritten(lambda text: text.replace(WORKSPACE, "/w"))
    assert instance.confined is not None
    assert instance.confined.filesystem.allow_write[1] == "/w/out"


def test_an_object_as_default_is_read_like_that_of_an_entry() -> None:
    made = server({}, sandbox={"mode": "strict", "filesystem": {"allowRead": ["~/a"]}})
    assert isinstance(made.confined, SandboxRules)
    assert (made.confined.mode, made.confined.filesystem.allow_read) == (SandboxMode.STRICT, ("/h/a",))


def test_rules_without_hosts_say_so() -> None:
    """Without the key, the registry of `npx` would be allowed."""
    rules = server({"sandboxEnabled": True}).confined
    assert rules is not None
    assert rules.as_written() == {"network": {"allowedDomains": []}}
