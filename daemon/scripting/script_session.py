"""One script in its worker: what runs in a thread, step by step, and never sees the event loop.

What a script makes can be a few bytes for its worker and terabytes for us (lists that share lists). So nothing
crosses but text: the worker writes JSON, and its length is looked at before it is read.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs
import msgspec

from daemon.kit.later import later

if TYPE_CHECKING:
    import pydantic_monty as monty

    from daemon.config.tuning import ScriptLimits
else:
    monty = later("pydantic_monty")

PRINTED_CHARACTERS = 64 * 1024
"""Characters kept of what a script prints."""
VALUE_BYTES = 1024 * 1024
"""Longest value of a script, and longest arguments of a call, as JSON."""
RESULT_BYTES = 8 * 1024 * 1024
"""Longest result of a call that a script gets, as JSON."""
ERROR_CHARACTERS = 2000
"""Characters kept of an error's message."""
FRAMES = 6
"""Lines of a script that an error names, the innermost ones."""
NICE = 10
"""Niceness of workers: scripts must not slow calls."""
GUESSES = 4
"""Lines tried as the beginning of the last expression."""
CUT = "\n[cut]"
"""Marks the end of a text that was cut."""
AWAIT = "call(...) has to be awaited: await call(...)"

PRELUDE = """
import asyncio, csv as _csv, json, json as _json, re
ToolError = _csv.Error
def _code(error): return str(error).partition(": ")[0] if isinstance(error, ToolError) else error.code
def _text(error): return str(error).partition(": ")[2] if isinstance(error, ToolError) else error.text
async def call(name, arguments=None):
    return _json.loads(await CALL(name + "\\n" + _json.dumps(arguments or {})))
def _plain(value):
    if isinstance(value, dict): return {k if isinstance(k, str) else str(k): _plain(value[k]) for k in value}
    if isinstance(value, (list, tuple, set, frozenset)): return [_plain(each) for each in value]
    if type(value).__name__ == "coroutine": raise TypeError("'coroutine' object is not a value")
    return value if value is None or isinstance(value, (str, int, float)) else str(value)
def DONE(value):
    try: return _json.dumps(value)
    except TypeError: return _json.dumps(_plain(value))
"""
"""Run before each script. The interpreter has no inheritance: ToolError is its rarest exception; `_code`
and `_text` are the attributes of that (`_readable`). CALL and DONE have a name that no script can guess: what a
script hands to another name is never read."""

_NOT_OURS = ("<python-input-0>", "<string>")
"""The prelude, and text that a script has given to `exec`: their lines are not the script's."""

_CAUGHT = re.compile(r"\bexcept\b[^:\n]{0,200}\bas\s+(\w+)\s*:")
_ATTRIBUTE = re.compile(r"(?<![\w.])(\w+)\.(code|text)\b(?!\s*(?:=[^=]|\())")


class ScriptError(Exception):
    """Raised into a script by a call that failed; the script catches it as ToolError."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


@attrs.frozen
class ScriptOutcome:
    """The end of a script."""

    value: object = None
    """The value of its last line, if that is an expression, as plain data."""
    printed: str = ""
    error: str = ""
    """In words, with the lines of the script that led to it; empty without one."""
    limit: str = ""
    """The limit that ended it: seconds, memory or calls."""


class ScriptSession:
    """One script and its worker. Every method blocks; only one at a time may run."""

    def __init__(self, code: str, inputs: Mapping[str, object], limits: ScriptLimits) -> None:
        self._code, self._inputs, self._limits = code, inputs, limits
        self._secret = f"_{secrets.token_hex(8)}"
        self._printed, self._room = [""], PRINTED_CHARACTERS
        self._session: Any = None
        self._process: int | None = None
        self._count = 0
        self.made: list[tuple[int, str, dict[str, object]]] = []
        """Calls that the script has made and nobody has started."""

    def open(self, pool: Any) -> None:
        """Take a worker from a pool."""
        limits = {
            "max_memory": self._limits.memory,
            "max_feed_duration_secs": self._limits.seconds,
            "max_suspensions": 1000 + 4 * self._limits.calls,
        }
        self._session = pool.checkout(limits=limits, script_name="script").__enter__()
        self._process = os.pidfd_open(self._session.worker_pid)
        for thread in os.listdir(f"/proc/{self._session.worker_pid}/task"):  # noqa: PTH208
            os.setpriority(os.PRIO_PROCESS, int(thread), NICE)
        self._session.feed_run(PRELUDE.replace("CALL", f"{self._secret}c").replace("DONE", f"{self._secret}d"))

    def kill(self) -> None:
        """Kill the worker, whatever it does; does not block."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def close(self) -> None:
        """Give the worker back to its pool, or let the pool replace a dead one."""
        if self._process is not None:
            os.close(self._process)
            self._process = None
        if self._session is not None:
            with suppress(monty.MontyError):
                self._session.__exit__(None, None, None)

    def begin(self) -> Any:
        """Run the script to its first wait, which is returned, or to its end: an `ScriptOutcome`."""
        return self.go_on(self._first)

    def resume(self, snapshot: Any, settled: Mapping[int, object]) -> Any:
        """Hand over results of calls, by the calls' numbers, and go on as `begin` does."""
        return self.go_on(lambda: snapshot.resume({call: _answer(result) for call, result in settled.items()}))

    def go_on(self, step: Callable[[], Any]) -> Any:
        """Take a step, and run the script to its next wait, which is returned, or to its end."""
        try:
            return self._run(step())
        except monty.MontyError as error:
            return self.failed(*_told(error, self._code.split("\n")))
        except BaseException as error:  # noqa: BLE001 - a panic in Rust is no Exception, and this is a thread
            return self.failed(f"the interpreter failed: {type(error).__name__}: {error!s:.2000}")

    def failed(self, error: str, limit: str = "") -> ScriptOutcome:
        """The outcome of a script that ends with an error."""
        return ScriptOutcome(None, "".join(self._printed), error, limit)

    def _first(self) -> Any:
        code = _readable(self._code)
        for attempt in _with_value(code, f"{self._secret}d"):
            with suppress(monty.MontySyntaxError):
                return self._feed(attempt)
        return self._feed(code + "\nNone")

    def _feed(self, code: str) -> Any:
        return self._session.feed_start(code, inputs={"inputs": self._inputs}, print_callback=self._print)

    def _run(self, snapshot: Any) -> Any:
        while not isinstance(snapshot, monty.FutureSnapshot):
            if isinstance(snapshot, monty.MontyComplete):
                return self._ended(snapshot.output)
            if isinstance(snapshot, monty.NameLookupSnapshot):
                snapshot = snapshot.resume()
            elif snapshot.is_os_function:
                snapshot = snapshot.resume_not_handled()
            elif snapshot.function_name == f"{self._secret}c":
                self._count += 1
                if self._count > self._limits.calls:
                    text = f"a script may make {self._limits.calls} calls, and this one tried more"
                    return self.failed(text, "calls")
                snapshot = snapshot.resume(self._called(snapshot))
            else:
                text = f"name {snapshot.function_name!r} is not defined"
                snapshot = snapshot.resume({"exc_type": "NameError", "message": text})
        return snapshot

    def _called(self, snapshot: Any) -> Any:
        name, _, arguments = snapshot.args[0].partition("\n")
        if len(arguments) > VALUE_BYTES:
            return _failure("too_large", f"the arguments have more than {VALUE_BYTES:,} characters: send less")
        read = json.loads(arguments)
        if not isinstance(read, dict):
            return {"exc_type": "TypeError", "message": 'call("server/tool", {...}): the arguments are a dict'}
        self.made.append((snapshot.call_id, name, read))
        return {"future": ...}

    def _ended(self, written: str | None) -> ScriptOutcome:
        if len(written or "") > VALUE_BYTES:
            return self.failed(f"the script's value has more than {VALUE_BYTES:,} characters: return less")
        value = json.loads(written or "null", parse_constant=lambda _: None)
        return ScriptOutcome(value, "".join(self._printed))

    def _print(self, _: str, text: str) -> None:
        if self._room > 0:
            self._printed.append(text if len(text) <= self._room else text[: self._room] + CUT)
        self._room -= len(text)


def _with_value(code: str, done: str) -> Iterator[str]:
    """The code with its last expression handed to `done`. Guesses at its line; a wrong one is no syntax."""
    lines = code.split("\n")
    starts = [n for n, line in enumerate(lines) if line and line[0] not in " \t\r#)]}"]
    for start in starts[: -GUESSES - 1 : -1]:
        yield "\n".join([*lines[:start], f"{done}((" + lines[start], *lines[start + 1 :], "))"])


def _readable(code: str) -> str:
    """The code with `error.code` and `error.text` of caught exceptions as calls, on the same lines."""
    caught = set(_CAUGHT.findall(code))
    return _ATTRIBUTE.sub(lambda m: f"_{m[2]}({m[1]})" if m[1] in caught else m[0], code)


def _failure(code: str, text: str) -> dict[str, object]:
    return {"exc_type": "_csv.Error", "message": f"{code}: {text}"}


def _answer(result: object) -> dict[str, object]:
    """A call's result, for its script."""
    if isinstance(result, ScriptError):
        return _failure(result.code, result.text)
    written = msgspec.json.encode(result)
    if len(written) > RESULT_BYTES:
        text = f"the result has {len(written):,} bytes, and a script takes {RESULT_BYTES:,}: ask for less"
        return _failure("too_large", text)
    return {"return_value": written.decode()}


def _told(error: Any, lines: Sequence[str]) -> tuple[str, str]:
    """An error in words with its lines of the script, and the limit that it stands for."""
    text = error.display("type-msg")[:ERROR_CHARACTERS] if hasattr(error, "display") else str(error)
    text = text.replace("_csv.Error", "ToolError", 1)
    if "coroutine" in text and text.startswith(("TypeError", "AttributeError")):
        text = AWAIT
    limit = "seconds" if text.startswith("TimeoutError: feed time limit") else ""
    limit = "memory" if text.startswith("MemoryError: ") else limit
    frames = [each for each in getattr(error, "traceback", list)()[-FRAMES:] if each.filename not in _NOT_OURS]
    for each in frames:
        text += f"\n  line {each.line}: {lines[each.line - 1].strip()[:200]}" if each.line <= len(lines) else ""
    return f"line {frames[-1].line}: {text}" if frames else text, limit
