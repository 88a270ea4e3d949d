"""No script leaves its worker or its limits, and the next one runs as if nothing had been."""

import json
from pathlib import Path

import pytest
import trio
from msgspec import Raw

from daemon.config.tuning import ScriptLimits
from daemon.scripting.interpreter import Answer, Interpreter
from daemon.scripting.runner import ScriptOutcome
from daemon.wire.outbox import Outbox
from tests.process.scripting.attacks import ATTACKS, SAID
from tests.process.scripting.conftest import PROCESS
from tests.process.scripting.test_interpreter import workers
from tests.waiting import eventually

WRITTEN = Path("/tmp/attack-of-a-script")
LIMITS = ScriptLimits(seconds=0.3, memory=16 * 1024 * 1024, calls=5)


def call(name: str, arguments: bytes, answer: Answer) -> None:
    if name != "s/waits":
        answer("", Raw(b"%d" % len(json.loads(arguments))))


@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    code, said = ATTACKS[name]
    interpreter, outbox = Interpreter(PROCESS, 1), Outbox()
    outcome = await interpreter.run(code, b"{}", call, LIMITS, lambda: False, outbox)
    # On a busy machine the time is over first.
    said = *said, "longer than"
    assert any(each in outcome.error if each else not outcome.error for each in said), outcome
    assert "interpreter failed" not in outcome.error
    assert len(outcome.error) < 4000
    assert len(outcome.printed) < 70_000
    assert "hunter2" not in str(outcome)
    assert len(str(outcome.value)) < SAID
    await trio.to_thread.run_sync(eventually, lambda: not workers())
    code = "await call('s/t', {'a': 1})"
    after = await interpreter.run(code, b"{}", call, ScriptLimits(), lambda: False, outbox)
    assert after == ScriptOutcome("1")


def test_no_attack_has_written_a_file() -> None:
    assert not WRITTEN.exists()
