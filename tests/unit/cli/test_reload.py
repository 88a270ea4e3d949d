"""`mcpd reload`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli import implementation
from daemon.cli.servers import reloaded

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Controls

main = implementation("reload").main

PLAN: dict[str, Any] = {
    "config": "/etc/mcpd.json",
    "added": [],
    "removed": [],
    "enabled": [],
    "disabled": [],
    "restarted": ["git"],
    "changed": [],
    "kept": [f"s{number}" for number in range(19)],
    "sections": [],
    "needsRestartOfDaemon": ["listen"],
    "states": {"git": {"state": "ready", "reason": ""}},
}
FAULTS = {
    "source": "/etc/mcpd.json",
    "faults": [{"path": "$.a", "message": "one"}, {"path": "$.b", "message": "two"}],
}
FAULTY = {
    "error": {
        "code": -32078,
        "message": "/etc/mcpd.json: 2 faults\n  $.a: one\n  $.b: two",
        "data": FAULTS,
    }
}


def test_the_plan_is_told_in_words(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = control({"reload": PLAN})
    assert main([]) == 0
    out = capsys.readouterr().out
    assert out == "restarted: git; unchanged: 19; needs a new start: listen\ngit: ready\n"
    assert daemon.asked == [("reload", {})]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"restarted": [], "needsRestartOfDaemon": [], "states": {}}, "nothing has changed; unchanged: 19"),
        (
            {
                "added": ["a", "b"],
                "removed": ["c"],
                "enabled": ["d"],
                "disabled": ["e"],
                "changed": ["f"],
                "sections": ["profiles"],
                "needsRestartOfDaemon": [],
                "states": {"a": {"state": "failed", "reason": "no such \x1b[31mcommand"}},
            },
            (
                "added: a, b; removed: c; switched on: d; switched off: e; restarted: git; changed: f;"
                " applied: profiles; unchanged: 19\na: failed, no such \\x1b[31mcommand"
            ),
        ),
    ],
)
def test_only_what_happened_is_named(changed: dict[str, Any], words: str) -> None:
    answer: Any = {**PLAN, **changed}
    assert reloaded(answer) == words


def test_a_faulty_file_is_78_with_every_fault(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    control({"reload": FAULTY})
    assert main([]) == 78
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "mcpd: /etc/mcpd.json: 2 faults",
        "  $.a: one",
        "  $.b: two",
        "mcpd: nothing was changed",
    ]


def test_the_faults_as_json_are_78_too(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    control({"reload": FAULTY})
    assert main(["--json"]) == 78
    assert json.loads(capsys.readouterr().out) == FAULTS
