"""`mcpd version`."""

import json
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from daemon import version
from daemon.cli import implementation
from daemon.cli.about import systemd
from tests.printing import out_of
from tests.unit.cli.conftest import Captured

main = implementation("version").main

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]


def test_what_matters_is_told_to_programs(capsys: Captured) -> None:
    told = json.loads(out_of(capsys, main(["--json"])))
    assert told["mcpd"] == version()
    assert told["python"] == ".".join(map(str, sys.version_info[:3]))
    assert told["mcp"][-2:] == ["2025-11-25", "2026-07-28"]
    assert all(told["libraries"].values())
    assert set(told["extras"]) == set(PROJECT["optional-dependencies"]) - {"locked"}
    assert told["extras"]["postgres"] == metadata.version("psycopg")


def test_a_systemd_that_does_not_answer_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert systemd() is None
    program = tmp_path / "systemctl"
    program.write_text("#!/bin/sh\necho 'systemd 257 (257.9-1)'\n")
    program.chmod(0o755)
    assert systemd() == "257"
    program.write_text("#!/bin/sh\nexit 1\n")
    assert systemd() is None
