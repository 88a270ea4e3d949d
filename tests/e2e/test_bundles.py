"""Bundles of real servers, packed by the official tool, run in sandboxes of a real daemon."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from daemon.sources import bundles
from daemon.sources.offers import filled
from tests.e2e.bundling import node_bundle, python_bundle
from tests.e2e.harness import running
from tests.pairwise import at_night

WHERE = {"type": "directory", "title": "Where", "description": "Files", "multiple": True, "required": True}
ZONE = {"type": "string", "title": "Zone", "description": "Of the clock", "default": "Europe/Berlin"}
FILE = {"type": "file", "title": "File", "description": "Kept there", "default": "${HOME}/memory.json"}

CALLS: dict[str, tuple[str, dict[str, Any], str]] = {
    "everything": ("echo", {"message": "hello"}, "Echo: hello"),
    "memory": ("read_graph", {}, "kept"),
    "filesystem": ("read_text_file", {"path": "{home}/b/note"}, "two"),
    "time": ("get_current_time", {"timezone": "UTC"}, '"timezone": "UTC"'),
}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """A bundle of each server: three of npm's and one of PyPI's."""
    at = tmp_path_factory.mktemp("packed")
    kept, named = {"env": {"MEMORY_FILE_PATH": "${user_config.file}"}}, {"args": ["${user_config.where}"]}
    zoned = {"args": ["--local-timezone=${user_config.zone}"]}
    return {
        "everything": node_bundle(at / "everything", "server-everything", {}),
        "memory": node_bundle(at / "memory", "server-memory", kept, user_config={"file": FILE}),
        "filesystem": node_bundle(at / "files", "server-filesystem", named, user_config={"where": WHERE}),
        "time": python_bundle(
            at / "time", "mcp-server-time", "mcp_server_time", zoned, user_config={"zone": ZONE}
        ),
    }


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Somebody with two directories, a memory, and a Python that has nothing installed."""
    home, programs = tmp_path / "home", tmp_path / "programs" / "bin"
    for name, text in {"a": "one", "b": "two"}.items():
        (home / name).mkdir(parents=True)
        (home / name / "note").write_text(text)
    (home / "memory.json").write_text('{"type":"entity","name":"kept","entityType":"a","observations":[]}\n')
    programs.mkdir(parents=True)
    (programs / "python3").symlink_to(os.path.realpath(sys.executable))
    return {"HOME": str(home), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize("mode", at_night(["home", "strict", "off"], "strict"))
def test_real_servers_of_bundles_run(mode: str, packed: Mapping[str, Path], environ: Mapping[str, str]) -> None:
    home, entries = environ["HOME"], {}
    for name, path in packed.items():
        offer = bundles.taken(path, environ=environ)
        origin = {"name": name, "version": offer.origin.version, "bundle": offer.origin.bundle}
        entries[name] = {**filled(offer, {"where": f"{home}/a:~/b"}), "origin": origin, "sandbox": mode}
    for name in ("filesystem", "memory") if mode == "strict" else ():
        rules = {"filesystem": {"allowRead": [f"{home}/{each}" for each in ("a", "b", "memory.json")]}}
        entries[name]["sandbox"] = rules
    with running({"mcpServers": entries}, environ) as daemon:
        servers = daemon.ready(*entries)
        assert {name: servers[name]["sandbox"] is None for name in entries} == dict.fromkeys(
            entries, mode == "off"
        )
        for name, (tool, arguments, said) in CALLS.items():
            given = {key: value.format(home=home) for key, value in arguments.items()}
            answer = daemon.ask("call", server=name, tool=tool, arguments=given)
            assert said in answer["content"][0]["text"]


def test_a_bundle_is_added_used_replaced_and_removed(
    packed: Mapping[str, Path], environ: Mapping[str, str]
) -> None:
    root = Path(environ["HOME"]) / ".local/share/mcpd/bundles"

    def unpacked() -> list[str]:
        return sorted(each.name.rpartition("-")[0] for each in root.iterdir())

    with running({"sandbox": "home"}, environ) as daemon:
        memory = str(packed["memory"])
        config = ("--config", str(daemon.config), "--yes")
        daemon.run("add", memory, *config)
        entry = json.loads(daemon.config.read_text())["mcpServers"]["server-memory"]
        digest = hashlib.sha256(packed["memory"].read_bytes()).hexdigest()
        assert (entry["trust"], entry["sandbox"], entry["origin"]["hash"]) == (
            "none",
            "home",
            f"sha256:{digest}",
        )
        daemon.run("approve", "server-memory")
        answer = daemon.ask("call", server="server-memory", tool="read_graph", arguments={})
        assert "kept" in answer["content"][0]["text"]
        daemon.run("add", "again", memory, *config)
        assert "its bundle" not in daemon.outcome("remove", "again", *config[:2]).stderr
        assert unpacked() == ["server-memory"]
        done = daemon.outcome("add", "server-memory", str(packed["everything"]), "--replace", *config)
        assert f"deleted its bundle, {root}/server-memory-{digest[:32]}" in done.stderr
        assert unpacked() == ["server-everything"]
        done = daemon.outcome("remove", "server-memory", *config[:2])
        assert "the daemon has stopped server-memory" in done.stdout
        assert "deleted its bundle" in done.stderr
        assert unpacked() == []
