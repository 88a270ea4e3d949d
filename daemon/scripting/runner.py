"""The process that runs scripts, each in a worker: its threads share no interpreter lock with the daemon.

Its stdin is a socket, over which the daemon hands it a connection for each script. A script ends with its
connection, and this process with its stdin: both end with the daemon, even if it is killed.

A few bytes in a worker can become terabytes here (lists that share lists). So a script's values cross as JSON
that the worker has written and measured (prelude.txt), and nothing else is read from it.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sysconfig
import tokenize
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread, active_count
from time import sleep
from typing import Any

import msgspec
from msgspec import Raw

from daemon.kit.later import later
from daemon.processes import proc

monty: Any = later("pydantic_monty")  # 10 MB, which the daemon does not need

MADE = ". The script's earlier calls ran: continue from their results in another script"
LIMIT = f" (`scriptLimits` of the profile){MADE}"
"""The end of an error about a limit."""
CRASHED = f"its process crashed or was killed, perhaps because this machine has no memory left{MADE}"

PRELUDE = Path(__file__).with_name("prelude.txt")
TURN = Lock()
"""Held while a call is sent, and during the pause after the call."""
PAUSE_SECONDS = 0.001
"""Seconds after each call while several scripts run: their calls would take most of the daemon's time."""
ONE_SCRIPT = 3
"""Threads of this process while one script runs."""
NICE = 10
"""Added niceness: `SCHED_IDLE` and 19 would give scripts next to nothing on a busy machine."""
SESSION_NICE = 4
"""Niceness of the session: the kernel compares sessions first (sched(7)). 4 weighs as much as four workers."""
PROCESSORS = sorted(os.sched_getaffinity(0))[1:] or [*os.sched_getaffinity(0)]
"""The processors of scripts: all but one, if there are several, which is left for others' calls."""
PRINTED = 64 * 1024
"""Most characters kept of a script's output."""
NAME = 1025
"""Characters kept of a tool's name: no tool has so long a name, and every call of one fails."""
OVERTIME = 2
"""Seconds after a script's limit when its worker ends by itself, should this process be killed."""

_ATTRIBUTE = re.compile(r"(?<![\w.])(\w+)\.(code|text)\b(?!\s*(?:[-+*/%&|^@]*=[^=]|\())")
_decode_task = msgspec.json.Decoder(tuple[str, Raw, dict[str, float]]).decode
_decode_answer = msgspec.json.Decoder(tuple[int, str, Raw]).decode
_PLACE = re.compile(r"\{[^{}]*\}")


class ScriptOutcome(msgspec.Struct, frozen=True):
    """The result of a script: the last message."""

    value: str = "null"
    """The value of the last line, if it is an expression, as Python writes JSON (NaN)."""
    printed: str = ""
    error: str = ""
    """The error in words, with the script's lines that led to it; empty without an error."""
    limit: str = ""
    """The limit that ended it: seconds, memory or calls."""


def line(message: object) -> bytes:
    """Encode a message. Line ends, which JSON allows between values, become spaces."""
    return msgspec.json.encode(message).replace(b"\n", b" ")


class _WorkerScript:
    """A script and its worker: one thread executes the steps, another one reads the answers to calls."""

    _code: str
    _inputs: Raw

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._secret, self._printed = f"_{os.urandom(8).hex()}", ""
        self._made = deque[tuple[int, str, str]]()
        """Calls for which there is no place: number, tool, and a JSON object of arguments."""
        self._session = SimpleQueue[tuple[Any, int]]()
        """The session and its worker's pid, once the worker has started; None and 0 if it cannot start."""
        self._answers = SimpleQueue[bytes]()
        """Lines with number, error and result; an empty one stands for the end of the connection."""

    def run(self) -> None:
        """Run the script; its worker ends with the connection."""
        with self._connection, self._connection.makefile("rb") as lines, suppress(OSError, msgspec.DecodeError):
            self._code, self._inputs, given = _decode_task(lines.readline())
            self._calls = self._left = int(given["calls"])
            self._free = int(given["parallel"])
            limits = {"max_memory": int(given["memory"]), "max_suspensions": 1000 + 4 * self._calls}
            limits["max_feed_duration_secs"] = int(given["seconds"]) + OVERTIME
            try:
                pool = monty.Monty(max_processes=1)
                (player := Thread(target=self._play, args=(pool, limits))).start()
                session, worker = self._session.get()
                try:
                    for each in lines:
                        self._answers.put(each)
                finally:
                    self._answers.put(b"")
                    if worker:
                        with suppress(ProcessLookupError):
                            os.kill(worker, signal.SIGKILL)
                    player.join()
                    for each in filter(None, (session, pool)):
                        each.__exit__(None, None, None)
            except BaseException as error:  # noqa: BLE001 - a panic of Rust is no Exception
                self._send(self._failed(*_words(error, self._code)))

    def _play(self, pool: Any, limits: dict[str, int]) -> None:
        try:
            session = pool.__enter__().checkout(limits=limits).__enter__()
            self._session.put((session, session.worker_pid))
            self._send(None)
            outcome = self._played(session)
        except BaseException as error:  # noqa: BLE001 - a panic of Rust is no Exception
            outcome = self._failed(*_words(error, self._code))
            self._session.put((None, 0))
        with suppress(OSError):
            self._send(outcome)

    def _send(self, message: object) -> None:
        self._connection.sendall(line(message) + b"\n")

    def _failed(self, error: str, limit: str = "") -> ScriptOutcome:
        return ScriptOutcome(printed=self._printed, error=error, limit=limit)

    def _played(self, session: Any) -> ScriptOutcome:
        session.feed_run(PRELUDE.read_text("utf-8").replace("SECRET", self._secret))
        step, name = self._begun(session), self._secret
        while not isinstance(step, monty.MontyComplete):
            if isinstance(step, monty.FutureSnapshot):
                step = step.resume(self._results(step.pending_call_ids))
            elif not isinstance(step, monty.FunctionSnapshot) or step.function_name not in (name, f"{name}v"):
                step = step.resume_auto()  # refused
            elif step.function_name != name:
                return ScriptOutcome(step.args[0], self._printed)
            elif self._left == 0:
                return self._failed(f"it tried more than {self._calls} calls{LIMIT}", "calls")
            else:
                self._left -= 1
                tool, arguments = step.args
                self._made.append((step.call_id, tool[:NAME], arguments))
                self._hand_over()
                step = step.resume({"future": ...})
        # Its output is never read: only what the prelude has measured crosses.
        return self._failed("`return` works only in a script's last line: make the value the last expression")

    def _results(self, pending: Collection[int]) -> dict[int, dict[str, object]]:
        """The results of pending calls that have arrived, at least one."""
        found, taken = dict[int, dict[str, object]](), 0
        while not found or not self._answers.empty():
            number, error, result = _decode_answer(self._answers.get())
            taken += 1
            if number in pending:
                found[number] = {"return_value": bytes(result).decode()}
                if error:
                    found[number] = {"exc_type": "_csv.Error", "message": error}
        # Not before: the results of the next calls would join these without an end and fill the memory.
        self._free += taken
        self._hand_over()
        return found

    def _hand_over(self) -> None:
        """Have the daemon make the calls that may be in flight."""
        while self._free > 0 and self._made:
            self._free -= 1
            with TURN:
                self._send(self._made.popleft())
                if active_count() > ONE_SCRIPT:
                    sleep(PAUSE_SECONDS)

    def _begun(self, session: Any) -> Any:
        """Start the script with its last expression wrapped in a call; a wrong guess does not compile."""
        code, inputs = _readable(self._code), msgspec.json.decode(self._inputs)
        feed = partial(session.feed_start, inputs={**inputs, "inputs": inputs}, print_callback=self._print)
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


def _words(error: Any, code: str) -> tuple[str, str]:
    if type(error).__name__ == "MontyCrashedError":
        return CRASHED, ""
    if not hasattr(error, "traceback"):
        return f"the interpreter failed: {error!r:.2000}", ""
    text = error.display("type-msg")[:2000].replace("_csv.Error", "ToolError", 1)
    if "coroutine" in text and text.startswith(("TypeError", "AttributeError")):
        text = "call(...) has to be awaited: await call(...)"
    lines = f"{code}\n\n".split("\n")
    # The prelude is not the script's, nor is text that it has given to `exec`.
    frames = [f for f in error.traceback() if f.filename not in {"<python-input-0>", "<string>"}][-6:]
    where = "".join(f"\n  line {f.line}: {lines[f.line - 1].strip()[:200]}" for f in frames)
    at = f"line {frames[-1].line}: " if frames else ""
    return f"{at}{text}{where}", "memory" if text.startswith("MemoryError: ") else ""


def main() -> None:
    """Run scripts until stdin ends."""
    proc.hide()
    with suppress(OSError):  # mcpd's system unit does not permit it
        os.nice(NICE)
        os.sched_setaffinity(0, PROCESSORS)
    with suppress(OSError):  # not every kernel has it
        Path("/proc/self/autogroup").write_text(str(SESSION_NICE), "ascii")
    sysconfig.get_config_vars()  # which the interpreter's package reads: its first call is for one thread alone
    with socket.socket(fileno=0) as control:
        while received := socket.recv_fds(control, 1, 1, socket.MSG_CMSG_CLOEXEC)[1]:
            connection = socket.socket(fileno=received[0])
            try:
                Thread(target=_WorkerScript(connection).run).start()
            except RuntimeError:  # the system lacks a resource; the connection's end says so
                connection.close()


if __name__ == "__main__":
    main()
