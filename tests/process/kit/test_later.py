"""Modules that are loaded when something of them is used first."""

import os
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from daemon.kit.later import pattern
from tests.e2e.harness import ROOT
from tests.waiting import run_to_end


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


def test_a_pattern_is_compiled_when_it_is_used_first(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = Mock(wraps=re.compile)
    monkeypatch.setattr(re, "compile", compiled)
    lazy = pattern(r"a (b)", re.VERBOSE)
    compiled.assert_not_called()
    assert (lazy.fullmatch("ab") is None, lazy.sub(r"\1", "aab"), lazy.pattern) == (False, "ab", "a (b)")
    compiled.assert_called_with("a (b)", re.VERBOSE)


STEPS = (
    "daemon.main.run, daemon.main.lifetime, daemon.processes.children",
    "daemon.host.logs, daemon.state.store",
    (
        "daemon.tree.running, daemon.search.vectors, daemon.upstreams.transports.server_connection,"
        "daemon.upstreams.transports.stdio, daemon.actors.local_doors, daemon.cli.about,"
        "daemon.counting.readings, daemon.actors.summarizer, daemon.summaries.endpoint"
    ),
    "daemon.upstreams.transports.http, daemon.upstreams.transports.sse, daemon.upstreams.transports.ws",
)
"""Imports of a daemon, one step after the other."""
NEEDLESS = {
    1: "rapidfuzz jsonschema_rs h11 daemon.clients.doors.http daemon.actors.summarizer psycopg mcp pydantic",
    2: "numpy tokenizers wordllama prometheus_client httpx2 wsproto",
    3: "mcp mcp_types pydantic",
}
"""After each step, what only those daemons pay for that use it: numpy 0.15 s and 20 MiB, the SDK a second."""
MOST_GENERATED = 115
"""Generating the methods of a class takes 0.5 ms, a struct of msgspec's 0.02: there were 175, and are 112."""


@pytest.fixture(scope="module")
def loaded() -> tuple[list[str], list[set[str]]]:
    """The classes that attrs generates for a daemon until it serves; the modules after each step."""
    script = (
        f"import {STEPS[0]}\nimport sys\n"
        "print(*(each.__qualname__ for name, module in [*sys.modules.items()] if name.startswith('daemon.')"
        " for each in vars(module).values() if isinstance(each, type) and each.__module__ == name"
        " and '__attrs_attrs__' in vars(each)))\n"
    )
    script += "".join(f"import {step}\nprint(*sys.modules)\n" for step in STEPS)
    done = run_to_end([sys.executable, "-P", "-c", script], check=True)
    generated, *modules = (line.split() for line in done.stdout.splitlines())
    return generated, [set(names) for names in modules]


def test_a_start_generates_few_classes(loaded: tuple[list[str], list[set[str]]]) -> None:
    assert 0 < len(loaded[0]) <= MOST_GENERATED, loaded[0]


@pytest.mark.parametrize("step", NEEDLESS)
def test_a_daemon_loads_nothing_that_only_others_use(
    step: int, loaded: tuple[list[str], list[set[str]]]
) -> None:
    assert not {*NEEDLESS[step].split()} & loaded[1][step]
