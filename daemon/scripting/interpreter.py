"""Runs models' scripts, each in a worker process with limits; tool calls are a script's only way out.

A few bytes in a worker can become terabytes here (lists that share lists). So a script's values cross as JSON
that the worker has written and measured (prelude.txt), and mcpd reads nothing else from it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import tokenize
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from weakref import WeakValueDictionary

import msgspec
import trio

from daemon.config.tuning import ScriptLimits
from daemon.kit.later import later
from daemon.processes import marks

monty: Any = later("pydantic_monty")  # 10 MB, needed with the first script

Inputs = Mapping[str, object]
Call = Callable[[str, bytes], Awaitable[bytes]]
"""Calls a tool by name, with a JSON object of arguments; returns JSON, raises `ScriptError`."""
Asking = Callable[[], bool]
"""Returns whether a user is being asked, which does not count as the script's time."""

PRELUDE = Path(__file__).with_name("prelude.txt")
WORKERS = 8
"""Most concurrent scripts, half of them for one owner. A worker takes 10 MB, besides its script's values."""
MOST_WORKERS = 32
"""Most concurrent scripts, including those whose users are asked: a user may take minutes."""
ASKED_SECONDS = 1800.0
"""Most seconds that a script's users may be asked in total: three of the longest questions (`approvals`)."""
CLOCK_SECONDS = 0.25
"""Seconds between checks whether a user is being asked."""
RESULT_BYTES = 8 * 1024 * 1024
"""Longest result of a call, as JSON. For the values of a script, prelude.txt has the limit."""
PRINTED = 64 * 1024
"""Most characters kept of a script's output."""

MADE = ". Calls before it were made: go on from what they did in another script"
ENDED = -1
"""Stands for the number of a call: there are no more results."""
LIMIT = f" (`scriptLimits` of the profile){MADE}"
"""The end of an error about a limit."""

TURN_SECONDS = 0.025
"""Seconds that a script waits for its turn, so that one that computes does not hold up others' calls."""

PROCESSORS = sorted(os.sched_getaffinity(0))[1:] or [*os.sched_getaffinity(0)]
"""The processors of workers: all but one, if there are several, which is left for others' calls."""

TURNS = SimpleQueue[None]()
"""One item for each script that may compute at a time."""
for _ in PROCESSORS:
    TURNS.put(None)

LOOP_TURN = trio.Lock()
"""Held for the start of one call, so that clients' calls come between those of scripts."""

PAUSE_SECONDS = 0.001
"""Seconds before each call while several scripts run: they take about a fifth of the loop's time."""

_ATTRIBUTE = re.compile(r"(?<![\w.])(\w+)\.(code|text)\b(?!\s*(?:[-+*/%&|^@]*=[^=]|\())")
_PLACE = re.compile(r"\{[^{}]*\}")


class ScriptError(Exception):
    """Raised into a script by a failed call; the script catches it as ToolError."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


class ScriptOutcome(msgspec.Struct, frozen=True):
    """The result of a script."""

    value: object = None
    """The value of the last line, if it is an expression, as plain data."""
    printed: str = ""
    error: str = ""
    """The error in words, with the script's lines that led to it; empty without an error."""
    limit: str = ""
    """The limit that ended it: seconds, memory or calls."""


class Interpreter:
    """Runs scripts concurrently, each in a separate worker that ends with it."""

    def __init__(self, workers: int = WORKERS) -> None:
        self.unavailable = (
            "" if find_spec("pydantic_monty") else "scripts need: pip install 'mcpd-supervisor[code]'"
        )
        """Why scripts cannot run; empty if they can."""
        self._share, self.places = max(1, workers // 2), trio.CapacityLimiter(workers)
        self._shares = WeakValueDictionary[str, trio.CapacityLimiter]()

    async def run(
        self, code: str, inputs: Inputs, call: Call, limits: ScriptLimits, asking: Asking, owner: str = ""
    ) -> ScriptOutcome:
        """Run an owner's script to its end; cancelling it ends its calls and its worker."""
        script = _RunningScript(code, inputs, call, limits, asking)
        script.places = self.places
        share = self._shares.setdefault(owner, trio.CapacityLimiter(self._share))
        async with share, trio.open_nursery() as script.nursery:
            # Not abandoned if cancelled: its worker is killed, or its wait ends.
            outcome: Any = await trio.to_thread.run_sync(script.run, limiter=self.places)
            script.nursery.cancel_scope.cancel()
        return script.failed(script.late, "seconds") if script.late else outcome


class _RunningScript:
    """A script and its worker: a thread executes the steps, and the event loop makes the calls."""

    nursery: trio.Nursery
    places: trio.CapacityLimiter
    late = ""
    """A text about the time limit that was exceeded; empty if none was."""

    def __init__(self, code: str, inputs: Inputs, call: Call, limits: ScriptLimits, asking: Asking) -> None:
        self._code, self._inputs, self._call, self._limits, self._asking = code, inputs, call, limits, asking
        self._secret, self._printed, self._left = f"_{os.urandom(8).hex()}", "", limits.calls
        self._alive: list[int] = []
        self._has_turn = False
        self._made = deque[tuple[int, str, bytes]]()
        """Calls for which there is no place."""
        self._free = limits.parallel
        self._results = SimpleQueue[tuple[int, bytes | ScriptError]]()
        self._soon = trio.lowlevel.current_trio_token().run_sync_soon

    async def _guard(self) -> None:
        """Kill the worker when the script's time or its questions' time is over, or when cancelled."""
        left, asked, lent = self._limits.seconds, ASKED_SECONDS, False
        try:
            while left > 0 and asked > 0:
                await trio.sleep(step := min(left, CLOCK_SECONDS))
                asking = self._asking()
                left, asked = (left, asked - step) if asking else (left - step, asked)
                if asking != lent and (lent or self.places.total_tokens < MOST_WORKERS):
                    lent = asking
                    self.places.total_tokens += 1 if lent else -1
            self.late = f"it took longer than {self._limits.seconds:g} s{LIMIT}"
            if left > 0:
                self.late = f"its users were asked for longer than {ASKED_SECONDS:g} s in all{MADE}"
            self.nursery.cancel_scope.cancel()
        finally:
            self.places.total_tokens -= lent
            self._kill()

    def _kill(self) -> None:
        self._results.put((ENDED, b""))
        with suppress(IndexError, ProcessLookupError):
            os.kill(self._alive.pop(), signal.SIGKILL)

    async def _answer(self, number: int, name: str, arguments: bytes) -> None:
        async with LOOP_TURN:  # which the next call gets in the next turn
            if self.places.borrowed_tokens > 1:
                await trio.sleep(PAUSE_SECONDS)
        try:
            self._results.put((number, await self._call(name, arguments)))
        except ScriptError as error:
            self._results.put((number, error))

    def run(self) -> ScriptOutcome:
        limits = {"max_memory": self._limits.memory, "max_suspensions": 1000 + 4 * self._limits.calls}
        limits["max_feed_duration_secs"] = int(self._limits.seconds) + 2  # for a daemon that is killed
        marks.started(mark := marks.new(), marks.ELSEWHERE)
        try:
            self._take_turn()
            with monty.Monty(max_processes=1) as pool, pool.checkout(limits=limits) as session:
                self._alive.append(pid := session.worker_pid)
                marks.started(mark, pid)
                for thread in map(int, os.listdir(f"/proc/{pid}/task")):  # noqa: PTH208
                    with suppress(OSError):  # mcpd's system unit permits neither
                        os.setpriority(os.PRIO_PROCESS, thread, 10)  # calls go before scripts
                        os.sched_setaffinity(thread, PROCESSORS)
                trio.from_thread.run_sync(self.nursery.start_soon, self._guard)
                try:
                    return self._played(session)
                finally:
                    self._kill()
        except BaseException as error:  # noqa: BLE001 - a panic of Rust is no Exception; cancellation comes again
            return self.failed(*_words(error, f"{self._code}\n\n".split("\n")))
        finally:
            self._end_turn()
            marks.forget(mark)

    def failed(self, error: str, limit: str = "") -> ScriptOutcome:
        return ScriptOutcome(None, self._printed, error, limit)

    def _played(self, session: Any) -> ScriptOutcome:
        session.feed_run(PRELUDE.read_text("utf-8").replace("SECRET", self._secret))
        step, name = self._begun(session), self._secret
        while not isinstance(step, monty.MontyComplete):
            if isinstance(step, monty.FutureSnapshot):
                step = step.resume(self._answers(step.pending_call_ids))
            elif not isinstance(step, monty.FunctionSnapshot) or step.function_name not in (name, f"{name}v"):
                step = step.resume_auto()  # refused
            elif step.function_name != name:
                return ScriptOutcome(json.loads(step.args[0]), self._printed)
            elif self._left == 0:
                return self.failed(f"it tried more than {self._limits.calls} calls{LIMIT}", "calls")
            else:
                self._left -= 1
                self._made.append((step.call_id, step.args[0], step.args[1].encode()))
                self._hand_over()
                step = step.resume({"future": ...})
        # Its output is never read: only what the prelude has measured crosses.
        return self.failed("`return` works only in a script's last line: make the value the last expression")

    def _answers(self, pending: Collection[int]) -> dict[int, dict[str, object]]:
        """The results of pending calls that have arrived, at least one; other scripts run during the wait."""
        found, taken = dict[int, dict[str, object]](), 0
        self._end_turn()
        while not found or not self._results.empty():
            number, result = self._results.get()
            if number == ENDED:
                raise trio.EndOfChannel
            taken += 1
            if number in pending:
                found[number] = _answer(result)
        # Not before: the results of the next calls would join these without an end and fill the memory.
        self._free += taken
        self._hand_over()
        self._take_turn()
        return found

    def _hand_over(self) -> None:
        """Have the loop make the calls that may be in flight."""
        while self._free and self._made:
            self._free -= 1
            # Without a wait for the loop, which would change hands twice for each call.
            self._soon(self.nursery.start_soon, self._answer, *self._made.popleft())

    def _take_turn(self) -> None:
        with suppress(Empty):
            TURNS.get(timeout=TURN_SECONDS)
            self._has_turn = True

    def _end_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            TURNS.put(None)

    def _begun(self, session: Any) -> Any:
        """Start the script with its last expression wrapped in a call; a wrong guess does not compile."""
        code = _readable(self._code)
        inputs = {**self._inputs, "inputs": self._inputs}
        feed = partial(session.feed_start, inputs=inputs, print_callback=self._print)
        for start in [match.start() for match in re.finditer(r"(?m)^[^\s#)\]}]", code)][:-5:-1]:
            with suppress(monty.MontySyntaxError):
                last = re.sub(r"\Areturn\b", "", code[start:])
                # `pass` is no syntax within an expression that began before.
                return feed(f"{code[:start]}pass; {self._secret}d(({last}\n))")
        return feed(f"{code}\n{self._secret}d(None)")

    def _print(self, _: str, text: str) -> None:
        if len(self._printed) <= PRINTED:
            self._printed = new if len(new := self._printed + text) <= PRINTED else new[:PRINTED] + "\n[cut]"


def _readable(code: str) -> str:
    """The code with `error.code` and `error.text` of caught errors turned into calls of the prelude."""
    caught = {*re.findall(r"\bexcept\b[^:\n]{0,200}\bas\s+(\w+)\s*:", code)}
    lines, parts, end = code.splitlines(keepends=True), list[str](), 0
    starts = [0, *accumulate(map(len, lines))]

    def called(text: str) -> str:
        return _ATTRIBUTE.sub(lambda m: f"_{m[2]}({m[1]})" if m[1] in caught else m[0], text)

    try:
        tokens = [*tokenize.generate_tokens(iter(lines).__next__)] if caught else []
    except (tokenize.TokenError, SyntaxError):
        return code  # which the interpreter refuses
    for token in tokens:
        if (kind := tokenize.tok_name[token.type]) in {"STRING", "FSTRING_MIDDLE"}:  # the latter since 3.12
            start, stop = (starts[line - 1] + column for line, column in (token.start, token.end))
            text = code[start:stop]
            is_format = kind == "STRING" and "f" in text.partition(text[-1])[0].lower()
            said = _PLACE.sub(lambda m: called(m[0]), text) if is_format else text
            parts += called(code[end:start]), said
            end = stop
    return "".join(parts) + called(code[end:])


def _answer(result: bytes | ScriptError) -> dict[str, object]:
    if not isinstance(result, ScriptError):
        if len(result) <= RESULT_BYTES:
            return {"return_value": result.decode()}
        result = ScriptError("too_large", f"the result has {len(result):,} bytes, not up to {RESULT_BYTES:,}")
    return {"exc_type": "_csv.Error", "message": f"{result.code}: {result.text}"}


def _words(error: Any, lines: list[str]) -> tuple[str, str]:
    if type(error).__name__ == "MontyCrashedError":
        return (
            f"its process crashed or was killed, perhaps because this machine has no memory left{MADE}",
            "",
        )
    if not hasattr(error, "traceback"):
        return f"the interpreter failed: {error!r:.2000}", ""
    text = error.display("type-msg")[:2000].replace("_csv.Error", "ToolError", 1)
    if "coroutine" in text and text.startswith(("TypeError", "AttributeError")):
        text = "call(...) has to be awaited: await call(...)"
    # The prelude is not the script's, nor is text that it has given to `exec`.
    frames = [f for f in error.traceback() if f.filename not in {"<python-input-0>", "<string>"}][-6:]
    where = "".join(f"\n  line {f.line}: {lines[f.line - 1].strip()[:200]}" for f in frames)
    at = f"line {frames[-1].line}: " if frames else ""
    return f"{at}{text}{where}", "memory" if text.startswith("MemoryError: ") else ""
