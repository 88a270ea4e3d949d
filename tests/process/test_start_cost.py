"""Counts of what the start of a daemon pays for: a client without a daemon waits for all of it."""

from __future__ import annotations

import json
import subprocess
import sys

COUNTING = """
import json, sys
import daemon.main.run, daemon.main.lifetime, daemon.processes.children
classes = [each for name, module in sys.modules.items() if name.startswith("daemon.")
           for each in vars(module).values() if isinstance(each, type) and each.__module__ == name]
generated = sorted(each.__qualname__ for each in classes if "__attrs_attrs__" in vars(each))
print(json.dumps({"generated": generated}))
"""
"""Imports what a daemon imports until it serves; prints the classes that attrs generated."""

MOST_GENERATED = 120
"""Generating the methods of a class takes 0.5 ms, a struct of msgspec's 0.02: there were 175, and are 109."""


def test_a_start_generates_few_classes() -> None:
    command = [sys.executable, "-P", "-c", COUNTING]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    loaded = json.loads(done.stdout)
    assert len(loaded["generated"]) <= MOST_GENERATED, loaded["generated"]
