"""Scripts in the real interpreter: what they get, what they give, and what ends them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
import trio
from msgspec import Raw

from daemon.config.tuning import ScriptLimits
from daemon.processes import marks, proc
from daemon.scripting import interpreter as module
from daemon.scripting import runner
from daemon.scripting.interpreter import Answer, Call, Interpreter, ScriptProcess
from daemon.scripting.runner import ScriptOutcome
from daemon.wire.outbox import IN, Outbox
from tests.process.scripting.conftest import PROCESS
from tests.unit.cases import cases
from tests.waiting import background, beside, eventually

ROOT = Path(__file__).parents[3]

QUICK = ScriptLimits(seconds=0.3)
SLOW = ScriptLimits(seconds=30.0)


class Failed(Exception):
    """Has the code and the text of a call's error."""


async def echo(name: str, arguments: dict[str, object]) -> object:
    if name == "s/fails":
        raise Failed("denied: You may not: do this")
    return {"name": name, "arguments": arguments}


Plain = Callable[[str, dict[str, object]], Awaitable[object]]


def of(call: Plain, nursery: trio.Nursery, outbox: Outbox) -> Call:
    """The same with data instead of JSON, in a task for each call."""

    async def made(name: str, arguments: bytes, answer: Answer) -> None:
        try:
            answer("", Raw(msgspec.json.encode(await call(name, json.loads(arguments)))))
        except Failed as error:
            answer(str(error), Raw(b"null"))
        outbox.flush()

    return lambda *told: nursery.start_soon(made, *told)


@attrs.frozen
class Scripts:
    """An interpreter whose calls end with it."""

    interpreter: Interpreter
    nursery: trio.Nursery
    outbox: Outbox = attrs.field(factory=Outbox)

    async def run(
        self,
        code: str,
        call: Plain = echo,
        limits: ScriptLimits = SLOW,
        inputs: Mapping[str, object] | None = None,
        asking: Callable[[], bool] = lambda: False,
        owner: str = "",
    ) -> ScriptOutcome:
        given = msgspec.json.encode(inputs or {})
        made = of(call, self.nursery, self.outbox)
        return await self.interpreter.run(code, given, made, limits, asking, self.outbox, owner)


@asynccontextmanager
async def interpreting(workers: int = 2, process: ScriptProcess = PROCESS) -> AsyncIterator[Scripts]:
    with trio.fail_after(60):
        async with background() as nursery:
            yield Scripts(Interpreter(process, workers), nursery)


@asynccontextmanager
async def kept(process: ScriptProcess) -> AsyncIterator[None]:
    async with beside(process.keep):
        yield


async def run(*told: Any, **more: Any) -> ScriptOutcome:
    async with interpreting() as scripts:
        return await scripts.run(*told, **more)


def value_of(outcome: ScriptOutcome) -> object:
    return json.loads(outcome.value)


def workers() -> list[int]:
    """The workers of all scripts."""
    found: list[int] = []
    for child in proc.own_children():
        for children in Path(f"/proc/{child}/task").glob("*/children"):
            with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
                found += [int(each) for each in children.read_text().split()]
    return [pid for pid in found if proc.name(pid) == "monty"]


@cases("code", "value")
async def test_the_last_expression_is_the_value(code: str, value: object) -> None:
    outcome = await run(code)
    assert (value_of(outcome), outcome.printed, outcome.error) == (value, "", "")


@cases("code", "error")
async def test_an_error_names_its_line(code: str, error: str) -> None:
    outcome = await run(code)
    assert outcome == ScriptOutcome(error=error)


async def test_inputs_are_given() -> None:
    assert value_of(await run("inputs['n'] + 1", inputs={"n": 1})) == 2


@cases("code", "printed")
async def test_a_failed_call_is_caught_as_a_tool_error(code: str, printed: str) -> None:
    assert await run(code) == ScriptOutcome(printed=printed)


async def test_a_call_without_await_does_not_run() -> None:
    called: list[str] = []

    async def call(name: str, _: dict[str, object]) -> object:
        called.append(name)
        return None

    outcome = await run("call('s/one')\nawait call('s/two')\n5", call)
    assert called == ["s/two"]
    assert value_of(outcome) == 5
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

    assert value_of(await run("await asyncio.gather(*[call('s/t') for i in range(3)])", call)) == [3, 3, 3]


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
    assert value_of(await run(code, call, ScriptLimits(parallel=2))) == 9
    assert most == 2


async def test_no_call_is_made_while_results_wait_for_a_busy_script() -> None:
    made: list[str] = []

    async def call(name: str, _arguments: dict[str, object]) -> object:
        made.append(name)
        return 1

    code = "import asyncio\nasync def busy(n):\n    await call(f's/{n}')\n    while True:\n        pass\n"
    code += "await asyncio.gather(*[busy(n) for n in range(20)])"
    outcome = await run(code, call, ScriptLimits(seconds=3.0, parallel=2))
    assert outcome.limit == "seconds"
    assert len(made) in {3, 4}, "both results may be there when the script takes the first"


async def test_the_script_goes_on_as_soon_as_one_call_has_failed() -> None:
    async def call(name: str, _: dict[str, object]) -> object:
        if name == "s/waits":
            await trio.sleep_forever()
        raise Failed("broken: It broke")

    code = "try:\n  await asyncio.gather(call('s/waits'), call('s/t'))\nexcept ToolError as e:\n  print(e.code)"
    assert (await run(code, call)).printed == "broken\n"


async def test_calls_are_counted() -> None:
    outcome = await run("for i in range(3):\n  await call('s/t')\n'done'", limits=ScriptLimits(calls=3))
    assert value_of(outcome) == "done"
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
        if looks == 600:
            answered.set()
        return looks < 600

    async def call(*_: object) -> object:
        await answered.wait()
        return "yes"

    assert value_of(await run("await call('s/t')", call, ScriptLimits(seconds=3.0), asking=asking)) == "yes"
    assert looks >= 600


async def test_users_are_not_asked_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOCK_SECONDS", 0.01)
    monkeypatch.setattr(module, "ASKED_SECONDS", 0.3)

    async def call(*_: object) -> object:
        await trio.sleep_forever()

    outcome = await run("await call('s/t')", call, SLOW, asking=lambda: True)
    assert (outcome.limit, value_of(outcome)) == ("seconds", None)
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
        async with beside(run, code, call):
            await begun.wait()
            assert len(workers()) == 1
            await trio.testing.wait_all_tasks_blocked(0.1)  # the loop runs
    assert ended.is_set() == ("goes" not in code)
    assert not workers()


async def test_a_worker_that_is_killed_ends_its_script_alone() -> None:
    async def call(*_: object) -> object:
        for pid in workers():
            os.kill(pid, signal.SIGKILL)
        return None

    async with interpreting(1) as scripts:
        outcome = await scripts.run("await call('s/t')", call)
        assert outcome.error.startswith("its process crashed or was killed")
        assert value_of(await scripts.run("1")) == 1


async def test_the_process_of_scripts_is_replaced_after_it_was_killed() -> None:
    process = ScriptProcess()

    async def call(*_: object) -> object:
        (pid,) = marks.children() - before
        os.kill(pid, signal.SIGKILL)
        return None

    before = marks.children()
    async with kept(process), interpreting(2, process) as scripts:
        assert (await scripts.run("await call('s/t')", call)).error.startswith("its process crashed")
        (pid,) = marks.children() - before
        await trio.to_thread.run_sync(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert value_of(await scripts.run("1")) == 1
        assert len(marks.children() - before) == 1
    assert marks.children() == before


async def test_the_process_of_scripts_ends_when_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.01)
    process, before = ScriptProcess(), marks.children()
    async with interpreting(2, process) as scripts:
        assert value_of(await scripts.run("1")) == 1
        assert len(marks.children() - before) == 1
        async with kept(process):
            await trio.to_thread.run_sync(eventually, lambda: marks.children() == before)
            assert value_of(await scripts.run("2")) == 2


def test_scripts_end_with_a_daemon_that_is_killed() -> None:
    code = "import trio\nfrom tests.process.scripting.test_interpreter import *\n"
    code += "async def call(*_):\n    print(*workers(), flush=True)\n"
    code += "trio.run(run, 'await call(1)\\nwhile True:\\n  pass', call)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT) as daemon:
        assert daemon.stdout is not None
        worker = int(daemon.stdout.readline())
        assert proc.name(worker) == "monty"
        daemon.kill()
    eventually(lambda: not Path(f"/proc/{worker}").exists())


async def test_scripts_leave_a_processor_to_others_and_workers_have_no_environment() -> None:
    seen: list[object] = []

    async def call(*_: object) -> object:
        (pid,) = workers()
        path = trio.Path(f"/proc/{pid}")
        worker = proc.read(pid)
        assert worker is not None
        tasks = [path / "task", trio.Path(f"/proc/{worker.parent}/task")]
        threads = [int(each.name) for task in tasks for each in await task.iterdir()]
        own = os.getpriority(os.PRIO_PROCESS, 0)
        seen.append({os.getpriority(os.PRIO_PROCESS, each) - own for each in threads})
        seen.append({tuple(sorted(os.sched_getaffinity(each))) for each in threads})
        seen.append(await (path / "environ").read_bytes())
        if await (group := path / "autogroup").exists():  # as the kernel was built
            assert (await group.read_text()).endswith(f" nice {runner.SESSION_NICE}\n")
        return None

    assert not (await run("await call('s/t')", call)).error
    assert seen == [
        {min(runner.NICE, 19 - os.getpriority(os.PRIO_PROCESS, 0))},
        {tuple(runner.PROCESSORS)},
        b"",
    ]


def program(patch: str) -> tuple[str, ...]:
    """The process of scripts, patched."""
    code = f"import os\nfrom daemon.scripting import runner\n{patch}\nrunner.main()"
    return (sys.executable, "-P", "-c", code)


@pytest.mark.parametrize(
    "patch",
    [
        "def refuse(*_): raise PermissionError\nos.nice = os.sched_setaffinity = refuse",
        f"import sys\nassert sys.path[0] == {str(ROOT)!r}",
    ],
)
async def test_a_script_runs_where_no_priority_may_be_set_and_with_the_daemons_code_wherever_it_was_found(
    patch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PROGRAM", program(patch))
    process = ScriptProcess()
    async with kept(process), interpreting(2, process) as scripts:
        assert value_of(await scripts.run("1")) == 1


async def test_a_process_that_takes_no_scripts_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROGRAM", program("import signal\nsignal.pause()"))
    process, before = ScriptProcess(), marks.children()

    async def connect_often() -> None:
        for _ in range(10_000):
            (await process.connect()).close()

    async with kept(process):
        with pytest.raises(OSError, match="unavailable"):
            await connect_often()
        (pid,) = marks.children() - before
        os.kill(pid, signal.SIGKILL)


async def test_a_process_that_takes_no_more_scripts_ends_those_it_runs_and_another_one_runs_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take = (
        "def once(control, *more):\n    taken = real(control, *more)\n    control.shutdown(0)\n    return taken"
    )
    patch = f"import socket\nreal = socket.recv_fds\n{take}\nsocket.recv_fds = once"
    monkeypatch.setattr(module, "PROGRAM", program(patch))
    process, before = ScriptProcess(), marks.children()

    async def call(*_: object) -> object:
        return value_of(await scripts.run("2"))

    async with kept(process), interpreting(4, process) as scripts:
        assert value_of(await scripts.run("1 + await call('s/t')", call)) == 3
        await trio.to_thread.run_sync(eventually, lambda: len(marks.children() - before) == 1)


async def test_an_answer_does_not_wait_for_the_end_of_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "END_SECONDS", 1000.0)
    patch = "import signal\nos.kill = lambda *_: signal.pause()"
    monkeypatch.setattr(module, "PROGRAM", program(patch))
    process, before = ScriptProcess(), marks.children()
    async with kept(process), interpreting(2, process) as scripts:
        assert value_of(await scripts.run("1")) == 1
        (pid,) = marks.children() - before
        os.kill(pid, signal.SIGKILL)


async def test_a_clients_message_goes_before_the_next_call_of_a_script() -> None:
    order, (heard, sent) = list[str](), os.pipe()

    def hear(_: int) -> None:
        os.read(heard, 1)
        order.append("client")

    def call(_name: str, _arguments: bytes, answer: Answer) -> None:
        order.append("script")
        os.write(sent, b".")
        answer("", Raw(b"1"))

    code = "await asyncio.gather(*[call('s/t') for i in range(8)])"
    async with interpreting() as scripts:
        poll = scripts.outbox.poll
        poll.watch(heard, IN, hear)
        outcome = await scripts.interpreter.run(code, b"{}", call, SLOW, lambda: False, scripts.outbox)
        poll.watch(heard, 0, hear)
    os.close(heard)
    os.close(sent)
    assert not outcome.error
    assert order == ["script", "client"] * 8


async def test_calls_pause_while_several_scripts_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pauses = tmp_path / "pauses"
    pauses.touch()
    monkeypatch.setattr(
        module, "PROGRAM", program(f"runner.sleep = lambda _: print(file=open({str(pauses)!r}, 'a'))")
    )
    process, both = ScriptProcess(), trio.Event()

    async def call(name: str, _arguments: dict[str, object]) -> object:
        if name == "s/alone":
            assert not pauses.read_text()
            scripts.nursery.start_soon(scripts.run, "await call('s/second')", call)
            await both.wait()
        both.set()
        return None

    async with kept(process), interpreting(4, process) as scripts:
        assert not (await scripts.run("await call('s/alone')", call)).error
        assert pauses.read_text()


async def test_no_worker_is_taken_for_a_stray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor reaped: both would be done to a child that nobody knows."""
    monkeypatch.setattr(marks, "_sweeping", [False])
    seen: list[object] = []

    async def call(*_: object) -> object:
        seen.append(bool(workers()))
        strays = {*marks.strays(), *(await trio.to_thread.run_sync(marks.find)).strays}
        seen.append(strays & {*workers(), *marks.children()})
        return None

    assert not (await run("await call('s/t')", call)).error
    assert seen == [True, set()]


async def test_what_is_printed_is_cut() -> None:
    for code in ("print('x' * 100000)\nprint('y')", "for i in range(100000):\n  print('x', end='')"):
        assert (await run(code)).printed == "x" * runner.PRINTED + "\n[cut]"


async def test_a_result_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESULT_BYTES", 100)

    async def call(*_: object) -> object:
        return "x" * 99

    outcome = await run("try:\n  await call('s/t')\nexcept ToolError as e:\n  print(e.code, '|', e.text)", call)
    assert outcome.printed == "too_large | the result has 101 bytes, more than 100\n"


async def test_a_name_that_is_too_long_is_cut() -> None:
    code = "len((await call('x' * 18_000_000))['name'])"
    assert value_of(await run(code, limits=ScriptLimits(seconds=120.0))) == runner.NAME


async def test_one_owner_has_half_of_the_workers() -> None:
    here: list[str] = []
    full, go = trio.Event(), trio.Event()

    async def call(name: str, _: dict[str, object]) -> object:
        here.append(name)
        if sorted(here) == ["one", "one", "two"]:
            full.set()
        await go.wait()
        return None

    async with interpreting(4) as scripts, trio.open_nursery() as nursery:
        for owner in ("one", "one", "one", "two"):
            run = partial(scripts.run, owner=owner)
            nursery.start_soon(run, f"await call('{owner}')", call)
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

    async with interpreting(2) as scripts:
        places = scripts.interpreter.places
        async with background() as nursery:
            for owner in ("one", "two"):
                run = partial(scripts.run, asking=lambda: True, owner=owner)
                nursery.start_soon(run, "await call('s/t')", call)
            await both.wait()
            assert value_of(await scripts.run("1", call, owner="three")) == 1
            assert places.total_tokens == 3
        assert places.total_tokens == 2


async def test_without_the_extra_its_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Interpreter(PROCESS).unavailable == ""
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    assert "pip install 'mcpd-supervisor[code]'" in Interpreter(PROCESS).unavailable


@pytest.mark.parametrize(
    "code", ["return 7", "x = await call('a', {'n': 7})\nreturn x['arguments']['n']", "return (\n  7\n)"]
)
async def test_a_script_may_end_with_return(code: str) -> None:
    assert value_of(await run(code)) == 7


BOMB = "a = [0] * 1000\nfor n in range(4):\n    a = [a] * 1000\n"


@pytest.mark.parametrize("code", ["if True:\n    return 7", f"{BOMB}if True:\n    return a", f"{BOMB}return a"])
async def test_a_value_that_nobody_has_measured_is_not_read(code: str) -> None:
    outcome = await run(code)
    assert value_of(outcome) is None
    assert "last" in outcome.error or "too_large" in outcome.error or outcome.limit == "memory"


@cases("said", "value")
async def test_an_error_has_code_and_text_and_strings_stay(said: str, value: object) -> None:
    outcome = await run(f"try:\n  await call('s/fails', {{}})\nexcept ToolError as e:\n  x = {said}\nx")
    assert value_of(outcome) == value, outcome


# --- scripts that attack -------------------------------------------------------------------------------------


WRITTEN = Path("/tmp/attack-of-a-script")
SAID = 1_100_000
"""Bound of a value in words."""
PARTS = {
    "BOMB\n": "a = [0] * 1000\nb = [a] * 1000\nc = [b] * 1000\nd = [c] * 1000\n",
    "DEEP\n": "a = []\nfor i in range(100000):\n  a = [a]\n",
    "PARENTHESES": "(" * 20000 + ")" * 20000,
    "MINUSES": "-" * 30000,
}
"""What words in the code of an attack stand for."""
LIMITS = ScriptLimits(seconds=0.3, memory=16 * 1024 * 1024, calls=5)


def call(name: str, arguments: bytes, answer: Answer) -> None:
    if name != "s/waits":
        answer("", Raw(b"%d" % len(json.loads(arguments))))


@cases("name", "code", "said")
async def test_an_attack_fails(name: str, code: str, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error has one of the words; an empty one stands for no error."""
    monkeypatch.setenv("SECRET", "hunter2")
    for word, part in PARTS.items():
        code = code.replace(word, part)
    interpreter, outbox = Interpreter(PROCESS, 1), Outbox()
    outcome = await interpreter.run(code, b"{}", call, LIMITS, lambda: False, outbox)
    # On a busy machine the time is over first.
    said = [*said, "longer than"]
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
