"""`make install`: nothing is installed that the locks do not pin by hash."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "requirements"


def locked(name: str) -> dict[str, str]:
    """What a lock pins, each with its version; a line without a hash is a fault."""
    entries = re.sub(r"\\\n", " ", (LOCKS / name).read_text()).splitlines()
    pins = [entry for entry in entries if entry and not entry.lstrip().startswith("#")]
    assert all("--hash=sha256:" in entry for entry in pins)
    return {
        found[1].lower(): found[2]
        for entry in pins
        if (found := re.match(r"([\w.-]+)(?:\[.*?\])?==(\S+)", entry))
    }


def name_of(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    return found[0].lower()


def test_it_installs_with_hashes_and_then_the_tree_without_asking_anybody() -> None:
    asked = ["make", "-n", "install", "PYTHON=python3", "PREFIX=/x y"]
    said = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
    lines = said.splitlines()
    assert lines[0] == (
        'scripts/venv "python3" "/x y/share/mcpd/venv" requirements/runtime.txt requirements/build.txt'
    )
    assert lines[1].endswith("pip install --quiet --no-deps --no-build-isolation .")
    assert 'ln -sfn "/x y/share/mcpd/venv/bin/mcpd" "/x y/bin/mcpd"' in lines
    assert sum("pip install" in line for line in lines) == 1
    assert '--require-hashes "${@/#/--requirement=}"' in (ROOT / "scripts" / "venv").read_text()


@pytest.mark.parametrize("lock", ["runtime.txt", "build.txt"])
def test_what_is_installed_is_what_is_tested(lock: str) -> None:
    tested = locked("dev.txt")
    assert {name: tested.get(name) for name in locked(lock)} == locked(lock)


def test_the_locks_hold_all_that_is_asked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert {name_of(each) for each in project["project"]["dependencies"]} <= locked("runtime.txt").keys()
    assert {name_of(each) for each in project["build-system"]["requires"]} <= locked("build.txt").keys()
