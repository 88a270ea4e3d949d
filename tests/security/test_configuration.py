"""A configuration that others can write starts nothing, is not taken over, and every command says so."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.e2e.harness import MCPD, running, scripted
from tests.waiting import WAIT, eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e


def test_a_daemon_does_not_start_with_what_every_user_can_write(tmp_path: Path) -> None:
    path = tmp_path / "mcpd.json"
    path.write_text(json.dumps({"mcpServers": {"mine": {"command": "touch", "args": [str(tmp_path / "ran")]}}}))
    path.chmod(0o666)
    for words in (("run", "--config", str(path)), ("check", str(path))):
        done = subprocess.run(
            [*MCPD, *words],
            env={"HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=False,
        )
        assert done.returncode == 78
        assert f"`chmod o-w {path}`" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_watched_configuration_that_others_can_write_is_not_taken_over() -> None:
    config = {"mcpServers": {"mine": scripted(tools=["echo"])}, "watch": True}
    with running(config) as daemon:
        daemon.ready()
        theirs = {**config, "mcpServers": {"theirs": scripted(tools=["echo"])}}
        daemon.config.chmod(0o666)
        daemon.config.write_text(json.dumps(theirs))
        advice = f"`chmod o-w {daemon.config}`"
        eventually(lambda: advice in daemon.said(), daemon.said)
        assert "nothing was changed" in daemon.said()
        assert advice in daemon.run("doctor", check=None)
        assert "theirs" not in daemon.run("reload", check=None)
        assert set(daemon.ask("status")["servers"]) == {"mine"}
        daemon.config.chmod(0o600)
        daemon.run("reload")
        assert set(daemon.ask("status")["servers"]) == {"theirs"}
