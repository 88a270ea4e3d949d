"""Scripts in the real interpreter: what they get, what they give, and what ends them."""

import json
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from queue import SimpleQueue
from unittest.mock import Mock

import attrs
import msgspec
import pytest
import trio

from daemon.config.tuning import ScriptLimits
from daemon.processes import marks, proc
from daemon.scripting import interpreter as module
from daemon.scripting.interpreter import Call, Interpreter, ScriptError, ScriptOutcome
from tests.unit.cases import cases

QUICK = ScriptLimits(seconds=0.3)
SLOW = ScriptLimits(seconds=30.0)


async def echo(name: str, arguments: dict[str, object]) -> object:
    if name == "s/fails":
        raise ScriptError("denied", "You may not: do this")
    return {"name": name, "arguments": arguments}


Plain = Callable[[str, dict[str, object]], Awaitable[object]]


def of(call: Plain) -> Call:
    """The same with data instead of JSON."""

    async def written(name: str, arguments: bytes) -> bytes:
        return msgspec.json.encode(await call(name, json.loads(arguments)))

    return written


async def run(
    code: str,
    call: Plain = echo,
    limits: ScriptLimits = SLOW,
    inputs: Mapping[str, object] | None = None,
    asking: Callable[[], bool] = lambda: False,
) -> ScriptOutcome:
    return await Interpreter(2).run(code, inputs or {}, of(call), limits, asking)


def workers() -> list[int]:
    return [pid for pid in proc.own_children() if proc.name(pid) == "monty"]


@cases("code", "value")
async def test_the_last_expression_is_the_value(code: str, value: object) -> None:
    assert await run(code) == ScriptOutcome(value)


@cases("code", "error")
async def test_an_error_names_its_line(code: str, error: str) -> None:
    outcome = await run(code)
    assert (outcome.error, outcome.value, outcome.limit) == (error, None, "")


async def test_inputs_are_given() -> None:
    assert (await run("inputs['n'] + 1", inputs={"n": 1})).value == 2


@cases("code", "printed")
async def test_a_failed_call_is_caught_as_a_tool_error(code: str, printed: str) -> None:
    assert await run(code) == ScriptOutcome(None, printed)


async def test_a_call_without_await_does_not_run() -> None:
    called: list[str] = []

    async def call(name: str, _: dict[str, object]) -> object:
        called.append(name)
        return None

    outcome = await run("call('s/one')\nawait call('s/two')\n5", call)
    assert called == ["s/two"]
    assert outcome.value == 5
    assert outcome.printed == "[not run, for want of await: 1 call(...); write await call(...)]\n"


async def test_gathered_calls_run_side_by_side() -> None:
    here, all_here = 0, trio.Event()

    async def call(*_: object) -> object:
        nonlocal here
        here += 1
        if here == 3:
            all_here.set()
        await all_here.wait()
        return here

    assert (await run("await asyncio.gather(*[call('s/t') for i in range(3)])", call)).value == [3, 3, 3]


async def test_no_more_calls_run_than_may() -> None:
    here, most = 0, 0

    async def call(*_: object) -> object:
        nonlocal here, most
        here += 1
        most = max(most, here)
        await trio.testing.wait_all_tasks_blocked(0.01)
        here -= 1
        return None

    code = "len(await asyncio.gather(*[call('s/t') for i in range(9)]))"
    assert (await run(code, call, ScriptLimits(parallel=2))).value == 9
    assert most == 2


async def test_no_call_is_made_while_results_wait_for_a_busy_script() -> None:
    made: list[str] = []

    async def call(name: str, _arguments: dict[str, object]) -> object:
        made.append(name)
        return 1

    code = "import asyncio\nasync def busy(n):\n    await call(f's/{n}')\n    while True:\n        pass\n"
    code += "await asyncio.gather(*[busy(n) for n in range(20)])"
    outcome = await run(code, call, attrs.evolve(QUICK, parallel=2))
    assert outcome.limit == "seconds"
    assert len(made) in {3, 4}, "both results may be there when the script takes the first"


async def test_the_script_goes_on_as_soon_as_one_call_has_failed() -> None:
    async def call(name: str, _: dict[str, object]) -> object:
        if name == "s/waits":
            await trio.sleep_forever()
        raise ScriptError("broken", "It broke")

    code = "try:\n  await asyncio.gather(call('s/waits'), call('s/t'))\nexcept ToolError as e:\n  print(e.code)"
    assert (await run(code, call)).printed == "broken\n"


async def test_calls_are_counted() -> None:
    outcome = await run("for i in range(3):\n  await call('s/t')\n'done'", limits=ScriptLimits(calls=3))
    assert outcome.value == "done"
    outcome = await run("print(1)\nfor i in range(4):\n  await call('s/t')", limits=ScriptLimits(calls=3))
    assert (outcome.limit, outcome.printed) == ("calls", "1\n")
    assert "3 calls" in outcome.error


async def test_memory_is_limited() -> None:
    outcome = await run("a = []\nwhile True:\n  a.append('x' * 1000)", limits=ScriptLimits(memory=1024 * 1024))
    assert (outcome.limit, outcome.error[:12]) == ("memory", "MemoryError:")


@pytest.mark.parametrize("code", ["while True:\n  pass", "await call('s/t')"])
async def test_time_is_limited(code: str) -> None:
    async def call(*_: object) -> object:
        await trio.sleep_forever()

    outcome = await run(code, call, QUICK)
    assert outcome.limit == "seconds"
    assert "longer than 0.3 s" in outcome.error


async def test_time_in_which_a_user_is_asked_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOCK_SECONDS", 0.01)
    looks, answered = 0, trio.Event()

    def asking() -> bool:
        nonlocal looks
        looks += 1
        if looks == 60:
            answered.set()
        return looks < 60

    async def call(*_: object) -> object:
        await answered.wait()
        return "yes"

    assert (await run("await call('s/t')", call, QUICK, asking=asking)).value == "yes"
    assert looks >= 60


async def test_users_are_not_asked_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOCK_SECONDS", 0.01)
    monkeypatch.setattr(module, "ASKED_SECONDS", 0.3)

    async def call(*_: object) -> object:
        await trio.sleep_forever()

    outcome = await run("await call('s/t')", call, SLOW, asking=lambda: True)
    assert (outcome.limit, outcome.value) == ("seconds", None)
    assert "its users were asked for longer than 0.3 s" in outcome.error


@pytest.mark.parametrize("code", ["await call('s/t')", "await call('s/goes')\nwhile True:\n  pass"])
async def test_a_cancelled_script_ends_its_calls_and_its_worker(code: str) -> None:
    begun, ended = trio.Event(), trio.Event()

    async def call(name: str, _: dict[str, object]) -> object:
        begun.set()
        if name == "s/goes":
            return None
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, code, call)
            await begun.wait()
            assert len(workers()) == 1
            await trio.testing.wait_all_tasks_blocked(0.1)  # the loop runs
            nursery.cancel_scope.cancel()
    assert ended.is_set() == ("goes" not in code)
    assert not workers()
    assert not marks.living()


async def test_a_worker_that_is_killed_ends_its_script_alone() -> None:
    async def call(*_: object) -> object:
        for pid in workers():
            os.kill(pid, signal.SIGKILL)
        return None

    scripts = Interpreter(1)
    outcome = await scripts.run("await call('s/t')", {}, of(call), SLOW, lambda: False)
    assert outcome.error.startswith("its process crashed or was killed")
    assert (await scripts.run("1", {}, of(call), SLOW, lambda: False)).value == 1


async def test_a_worker_is_nice_leaves_a_processor_free_and_has_no_environment() -> None:
    seen: list[object] = []

    async def call(*_: object) -> object:
        (pid,) = workers()
        path = trio.Path(f"/proc/{pid}")
        threads = [int(each.name) for each in await (path / "task").iterdir()]
        seen.append({os.getpriority(os.PRIO_PROCESS, each) for each in threads})
        seen.append(set.union(*map(os.sched_getaffinity, threads)) - {*module.PROCESSORS})
        seen.append(await (path / "environ").read_bytes())
        return None

    assert not (await run("await call('s/t')", call)).error
    assert seen == [{10}, set(), b""]
    assert len(module.PROCESSORS) == max(1, len(os.sched_getaffinity(0)) - 1)


async def test_a_script_runs_where_no_priority_may_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "setpriority", Mock(side_effect=PermissionError))
    assert (await run("1")).value == 1


async def test_clients_calls_come_between_the_calls_of_a_script() -> None:
    """A turn of the loop starts one call."""

    class Turns(trio.abc.Instrument):
        number = 0

        def before_io_wait(self, timeout: float) -> None:
            del timeout
            self.number += 1

    turns, started = Turns(), list[int]()
    all_here = [trio.Event(), trio.Event()]

    async def call(*_: object) -> object:
        started.append(turns.number)
        batch = all_here[(len(started) - 1) // 8]
        if len(started) % 8 == 0:
            batch.set()
        await batch.wait()
        return None

    trio.lowlevel.add_instrument(turns)
    assert not (await run("await asyncio.gather(*[call('s/t') for i in range(16)])", call)).error
    trio.lowlevel.remove_instrument(turns)
    assert len(set(started)) == len(started)


async def test_calls_pause_while_several_scripts_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses, scripts, all_here = list[str](), Interpreter(4), trio.Event()
    sleep, made = trio.sleep, list[str]()

    async def recorded(seconds: float) -> None:
        if seconds == module.PAUSE_SECONDS:
            pauses.append(made[-1])
        await sleep(seconds)

    async def call(name: str, _arguments: dict[str, object]) -> object:
        made.append(name)
        if name == "s/alone":
            nursery.start_soon(scripts.run, "await call('s/second')", {}, of(call), SLOW, lambda: False, "b")
            await all_here.wait()
        all_here.set()
        return None

    monkeypatch.setattr(trio, "sleep", recorded)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await scripts.run("await call('s/alone')", {}, of(call), SLOW, lambda: False, "a")
    assert (made, pauses) == (["s/alone", "s/second"], ["s/alone"])


async def test_no_worker_is_taken_for_a_stray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor reaped: both would be done to a child that nobody knows."""
    monkeypatch.setattr(marks, "_sweeping", [False])
    seen: list[object] = []

    async def call(*_: object) -> object:
        seen.extend([workers() == marks.strays(), set(workers()) <= marks.children()])
        seen.append(bool(set(workers()) & set((await trio.to_thread.run_sync(marks.find)).strays)))
        return None

    assert not (await run("await call('s/t')", call)).error
    assert seen == [False, True, False]


async def test_what_is_printed_is_cut() -> None:
    for code in ("print('x' * 100000)\nprint('y')", "for i in range(100000):\n  print('x', end='')"):
        assert (await run(code)).printed == "x" * module.PRINTED + "\n[cut]"


async def test_a_result_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESULT_BYTES", 100)

    async def call(*_: object) -> object:
        return "x" * 99

    outcome = await run("try:\n  await call('s/t')\nexcept ToolError as e:\n  print(e.code, '|', e.text)", call)
    assert outcome.printed == "too_large | the result has 101 bytes, not up to 100\n"


@cases("code", "seconds", "first")
async def test_a_script_runs_in_turn_with_others_unless_it_waits_for_calls_or_takes_long(
    code: str, seconds: float, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = SimpleQueue[None]()
    turns.put(None)
    monkeypatch.setattr(module, "TURNS", turns)
    monkeypatch.setattr(module, "TURN_SECONDS", seconds)
    scripts, ended = Interpreter(4), list[str]()
    limits = ScriptLimits(seconds=0.3 if first == "one" else 30.0)

    async def call(*_: object) -> bytes:
        await trio.sleep_forever()

    async def begin(name: str, code: str, limits: ScriptLimits) -> None:
        await scripts.run(code, {}, call, limits, lambda: False, name)
        ended.append(name)
        nursery.cancel_scope.cancel()

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(begin, "one", code, limits)
            while not turns.empty():
                await trio.lowlevel.checkpoint()
            nursery.start_soon(begin, "other", "1", SLOW)
    assert ended == [first]
    assert turns.qsize() == 1


async def test_one_owner_has_half_of_the_workers() -> None:
    here: list[str] = []
    full, go = trio.Event(), trio.Event()

    async def call(name: str, _: dict[str, object]) -> object:
        here.append(name)
        if sorted(here) == ["one", "one", "two"]:
            full.set()
        await go.wait()
        return None

    scripts = Interpreter(4)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            for owner in ("one", "one", "one", "two"):
                code = f"await call('{owner}')"
                nursery.start_soon(scripts.run, code, {}, of(call), SLOW, lambda: False, owner)
            await full.wait()
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert sorted(here) == ["one", "one", "two"]
            go.set()
    assert len(here) == 4


async def test_scripts_whose_users_are_asked_leave_their_places_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CLOCK_SECONDS", 0.01)
    monkeypatch.setattr(module, "MOST_WORKERS", 3)

    made, both = list[str](), trio.Event()

    async def call(name: str, _arguments: dict[str, object]) -> object:
        made.append(name)
        if len(made) == 2:
            both.set()
        await trio.sleep_forever()

    scripts = Interpreter(2)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            for owner in ("one", "two"):
                nursery.start_soon(scripts.run, "await call('s/t')", {}, of(call), SLOW, lambda: True, owner)
            await both.wait()
            assert (await scripts.run("1", {}, of(call), SLOW, lambda: False, "three")).value == 1
            assert scripts.places.total_tokens == 3
            nursery.cancel_scope.cancel()
    assert scripts.places.total_tokens == 2


async def test_without_the_extra_its_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Interpreter().unavailable == ""
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    assert "pip install 'mcpd-supervisor[code]'" in Interpreter().unavailable


@pytest.mark.parametrize(
    "code", ["return 7", "x = await call('a', {'n': 7})\nreturn x['arguments']['n']", "return (\n  7\n)"]
)
async def test_a_script_may_end_with_return(code: str) -> None:
    assert (await run(code)).value == 7


BOMB = "a = [0] * 1000\nfor n in range(4):\n    a = [a] * 1000\n"


@pytest.mark.parametrize("code", ["if True:\n    return 7", f"{BOMB}if True:\n    return a", f"{BOMB}return a"])
async def test_a_value_that_nobody_has_measured_is_not_read(code: str) -> None:
    outcome = await run(code)
    assert outcome.value is None
    assert "last" in outcome.error or "too_large" in outcome.error or outcome.limit == "memory"


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("e.code", "denied"),
        ("f'it says {e.text!r}, and e.text'", "it says 'You may not: do this', and e.text"),
        ("'see e.text' + \"e.code\"", "see e.texte.code"),
        ("'''two\nlines: e.text''' + e.code", "two\nlines: e.textdenied"),
        ("[e.code == 'denied', e.text  # e.code\n]", [True, "You may not: do this"]),
    ],
)
async def test_an_error_has_code_and_text_and_strings_stay(said: str, value: object) -> None:
    outcome = await run(f"try:\n  await call('s/fails', {{}})\nexcept ToolError as e:\n  x = {said}\nx")
    assert outcome.value == value, outcome
