"""No script leaves its worker or its limits, and the next one runs as if nothing had been."""

import json
from pathlib import Path

import pytest
import trio

from daemon.config.tuning import ScriptLimits
from daemon.processes import marks, proc
from daemon.scripting.interpreter import Interpreter, ScriptOutcome
from tests.unit.scripting.attacks import ATTACKS, SAID

WRITTEN = Path("/tmp/attack-of-a-script")
LIMITS = ScriptLimits(seconds=0.3, memory=16 * 1024 * 1024, calls=5)


async def answer(name: str, arguments: bytes) -> bytes:
    if name == "s/waits":
        await trio.sleep_forever()
    return b"%d" % len(json.loads(arguments))


@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    code, said = ATTACKS[name]
    interpreter = Interpreter(1)
    outcome = await interpreter.run(code, {}, answer, LIMITS, lambda: False)
    # On a busy machine the time is over first.
    said = *said, "longer than"
    assert any(each in outcome.error if each else not outcome.error for each in said), outcome
    assert "interpreter failed" not in outcome.error
    assert len(outcome.error) < 4000
    assert len(outcome.printed) < 70_000
    assert "hunter2" not in str(outcome)
    assert len(str(outcome.value)) < SAID
    assert not marks.living()
    assert not [pid for pid in proc.own_children() if proc.name(pid) == "monty"]
    after = await interpreter.run("await call('s/t', {'a': 1})", {}, answer, ScriptLimits(), lambda: False)
    assert after == ScriptOutcome(1)


def test_no_attack_has_written_a_file() -> None:
    assert not WRITTEN.exists()
