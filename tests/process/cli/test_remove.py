"""`mcpd remove`: what still names the server is listed, and nothing is changed."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.e2e.harness import MCPD, ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process


def remove(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MCPD, "remove", *words],
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(home),
            "XDG_RUNTIME_DIR": str(home),
            "MCPD_CONFIG": str(home / "c"),
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_server_that_a_category_names_stays(tmp_path: Path) -> None:
    text = '{"mcpServers": {"a": {"command": "x"}}, "categories": {"c": {"server": "a"}}}'
    (tmp_path / "c").write_text(text)
    done = remove(tmp_path, "a")
    assert (done.returncode, "$.categories.c.server" in done.stderr) == (78, True), done.stderr
    assert (tmp_path / "c").read_text() == text


def test_a_server_is_removed_under_the_name_that_it_is_shown_by(tmp_path: Path) -> None:
    (tmp_path / "c").write_text('{"mcpServers": {"Brave Search": {"command": "x"}, "b": {"command": "y"}}}')
    assert "did you mean 'b'" in remove(tmp_path, "bb").stderr
    shown = remove(tmp_path, "brave-search", "--dry-run")
    assert (shown.returncode, '-{"mcpServers"' in shown.stdout) == (0, True)
    done = remove(tmp_path, "brave-search")
    assert (done.returncode, "no daemon runs" in done.stdout) == (0, True), done.stderr
    assert (tmp_path / "c").read_text() == '{"mcpServers": {"b": {"command": "y"}}}'


def test_secrets_that_only_the_removed_server_used_are_named(tmp_path: Path) -> None:
    config = {"a": {"command": "x", "env": {"A": "${ONE}", "B": "${TWO}"}}, "b": {"command": "${TWO}"}}
    (tmp_path / "c").write_text(json.dumps({"mcpServers": config}))
    (tmp_path / "env").write_text("ONE=1\nTWO=2\n")
    (tmp_path / "env").chmod(0o600)
    done = remove(tmp_path, "a")
    assert done.stderr == f"mcpd: {tmp_path / 'env'} still holds what only this server used: ONE\n"
