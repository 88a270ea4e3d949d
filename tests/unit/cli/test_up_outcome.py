"""The last three lines of `mcpd up`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from daemon.cli.up import settled, summary, titles
from daemon.setup.clients.importing import find
from daemon.setup.clients.programs import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from daemon.setup.clients.programs import Machine
    from tests.unit.cli.conftest import Controls

SERVERS: dict[str, Any] = {
    "time": {"state": "ready", "tools": 2},
    "later": {"state": "dormant", "tools": 0},
    "off": {"state": "disabled", "tools": 0},
    "notion": {"state": "needs_auth", "reason": "401\nmore", "tools": 0},
    "slow": {"state": "starting", "tools": 0},
}


def test_what_works_what_needs_attention_and_the_way_back(user: Callable[..., Machine]) -> None:
    here = user("vscode")
    found = find(here, [PROGRAMS["vscode"]])
    options = argparse.Namespace(socket="/s")
    works, attention, undo = summary(SERVERS, [PROGRAMS["codex"]], found, options)
    assert works == "Works: time, later, in Codex once started anew."
    assert "notion: needs_auth, 401 (`mcpd login notion`)" in attention
    assert "slow is still starting (`mcpd status`)" in attention
    assert undo == "Undo: `mcpd uninstall codex`, then `mcpd stop`."
    assert summary(SERVERS, [], found, options)[2] == "Undo: `mcpd stop`."


def test_each_server_is_told_once_it_is_up_or_has_failed(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    ready = {name: server for name, server in SERVERS.items() if name != "slow"}
    control({"status": {"servers": ready}})
    options = argparse.Namespace(socket=None, control=None, timeout=5.0, wait=5.0)
    assert settled(options) == ready
    told = capsys.readouterr().out
    assert "  time: ready, 2 tools\n" in told
    assert "  notion: needs_auth\n" in told
    assert "off:" not in told


def test_a_daemon_that_is_gone_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MCPD_CONTROL", "/nowhere/control.sock")
    assert settled(argparse.Namespace(socket=None, control=None, timeout=5.0, wait=5.0)) == {}
    assert "/nowhere/control.sock" in capsys.readouterr().err


def test_clients_are_named_as_in_a_sentence() -> None:
    codex, cursor, zed = (PROGRAMS[name] for name in ("codex", "cursor", "zed"))
    assert titles([codex]) == "Codex"
    assert titles([codex, cursor, zed]) == "Codex, Cursor and Zed"
