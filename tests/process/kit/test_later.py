"""Modules that are loaded when something of them is used first."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import ROOT


def test_what_is_due_is_loaded_when_it_is_time_and_nothing_else() -> None:
    script = (
        "import sys\n"
        "from daemon.kit.later import later, load_due\n"
        "later('colorsys', due=True), later('fractions')\n"
        "assert 'colorsys' not in sys.modules\n"
        "load_due()\n"
        "assert 'colorsys' in sys.modules and 'fractions' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_what_is_due_and_used_at_that_moment_is_loaded_by_one_of_the_two_threads(tmp_path: Path) -> None:
    """The two modules import each other, as those of some packages do."""
    files = {
        "gate": "import threading\nbegun, other, used = (threading.Event() for _ in range(3))\n",
        # Nothing tells that the other thread waits; without a lock, it is there at once, and reads `value`.
        "one": "import gate\ngate.begun.set()\ngate.other.wait(0.2)\n"
        "from two import value as other\ngate.used.wait(0.2)\nvalue = 1\n",
        "two": "import gate\ngate.other.set()\nimport one\nvalue = 2\n",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    script = (
        "import gate, threading\n"
        "from daemon.kit.later import later, load_due\n"
        "later('one', due=True)\n"
        "thread = threading.Thread(target=load_due)\n"
        "thread.start()\n"
        "gate.begun.wait()\n"
        "assert later('two').one.value == 1\n"
        "thread.join()\n"
    )
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, env=environ)


@pytest.mark.parametrize(
    "needless",
    [
        *("rapidfuzz", "jsonschema_rs", "h11", "daemon.clients.doors.http", "daemon.actors.summarizer"),
        *("psycopg", "mcp", "pydantic"),
    ],
)
def test_a_daemon_with_an_ordinary_configuration_does_not_begin_by_loading(
    needless: str, loaded: frozenset[str]
) -> None:
    assert needless not in loaded


@pytest.fixture(scope="module")
def loaded() -> frozenset[str]:
    """What is loaded once the daemon is wired."""
    modules = "daemon.main.run, daemon.main.lifetime, daemon.host.logs, daemon.state.store"
    script = f"import sys, {modules}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, timeout=60, capture_output=True, text=True
    )
    return frozenset(done.stdout.split())
