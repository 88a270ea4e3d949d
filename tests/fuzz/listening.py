"""A server that says what it should not while a call waits for it: the call must end with what answers it."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import attrs
import trio

from tests.fuzz.mutation import UID
from tests.fuzz.promises import Members, Said, canonical, from_server, read
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.fuzz.mutation import Malformed
    from tests.fuzz.talking import Results


_READ = 1 << 20


@attrs.frozen
class Expected:
    """What the call is answered with, and what else comes of it."""

    answers: tuple[tuple[Said, Any], ...]
    """Any of these: the first line that answers it, and as long as it is in doubt, the next."""
    asked: frozenset[str]
    """Ids of requests to us, surely."""


def expected(data: bytes) -> tuple[Expected, list[Said]]:
    """What comes of the bytes that a server says before its sound answer."""
    answers: list[tuple[Said, Any]] = []
    asked, kinds, sure = set(), [], False
    for line in data.split(b"\n"):
        said, value = from_server(line, UID, mend=True)
        kinds.append(said)
        if said is Said.ASKS and str(UID) not in value:
            asked.add(value)
        if said in {Said.RESULT, Said.ERROR, Said.EITHER} and not sure:
            answers.append((said, value))
            sure = said is not Said.EITHER
    if not sure:
        answers.append((Said.TAKEN, None))
    return Expected(tuple(answers), frozenset(asked)), kinds


class Caller:
    """A client that calls the tool `say` of the server `says`."""

    def __init__(self, stream: trio.abc.Stream, results: Results) -> None:
        self._stream = stream
        self._results = results
        self._rest = b""
        self._waits: set[str] = set()  # ids that the server asks with
        self._last = 0

    async def begin(self) -> None:
        """Ask for the surface that shows the tools themselves."""
        hello = b'{"jsonrpc":"2.0","method":"mcpd/hello","params":{"surface":"full"}}\n'
        await self._stream.send_all(hello)

    async def say(self, each: Malformed) -> None:
        """Have one input said, and check what comes of it."""
        wanted, kinds = expected(each.data)
        self._results.inputs += 1
        self._results.outcomes.update(str(kind) for kind in kinds)
        line = base64.b64encode(each.data).decode()
        answer = await self.call("say", {"line": line})
        if answer is None:
            self._results.blame(each, "the call is not answered")
            return
        self._waits |= wanted.asked
        if not any(_fits(answer, *one) for one in wanted.answers):
            self._results.blame(each, f"answered {answer[:300]!r} instead of {str(wanted.answers)[:300]}")

    async def finish(self, last: Malformed) -> None:
        """A valid call is answered, and the server was answered all that it had asked."""
        if b"still here" not in (await self.call("echo", {"nonce": "still here"}) or b""):
            self._results.blame(last, "the next valid call is not answered")
        answer = await self.call("heard", {})
        heard = json.loads(_text(read((answer or b"null").decode())) or '{"heard": [], "unreadable": -1}')
        answered = {spelt for each in heard["heard"] for spelt in (str(each), canonical(each), "null")}
        if self._waits - answered:
            self._results.blame(last, f"the server was not answered {sorted(self._waits - answered)[:5]}")
        if heard["unreadable"]:
            self._results.blame(last, f"the server got {heard['unreadable']} lines that are not JSON")

    async def call(self, name: str, arguments: dict[str, Any]) -> bytes | None:
        """Call a tool. Returns the answer as it came, None if there is none."""
        self._last += 1
        params = {"name": name, "arguments": arguments}
        request = {"jsonrpc": "2.0", "id": self._last, "method": "tools/call", "params": params}
        await self._stream.send_all(json.dumps(request).encode() + b"\n")
        head = b'{"jsonrpc":"2.0","id":%d,' % self._last
        while (line := await self._line()) is not None:
            if line.startswith(head):
                return line
            if b'"method"' not in line[:60]:
                self._results.faults.append(f"{self._results.side}: nobody asked for {line[:200]!r}")
        return None

    async def _line(self) -> bytes | None:
        pieces = [self._rest]
        while b"\n" not in pieces[-1]:
            chunk: bytes | bytearray = b""
            with trio.move_on_after(PATIENCE):
                chunk = await self._stream.receive_some(_READ)
            if not chunk:
                return None
            pieces.append(bytes(chunk))
        line, _, self._rest = b"".join(pieces).partition(b"\n")
        return line


def _fits(answer: bytes, said: Said, value: Any) -> bool:
    try:
        message = read(answer.decode())
    except RecursionError:
        return said is Said.EITHER
    result = message.last("result")
    failed = isinstance(result, Members) and result.last("isError") is True
    match said:
        case Said.RESULT:
            return bool(result == value)
        case Said.ERROR:
            return failed
        case Said.TAKEN:
            return _text(message) == "sound"
        case _:
            return value is None or failed or _equal(result, value)


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except RecursionError:  # too deep to be compared
        return True


def _text(message: Any) -> str:
    """The text of an answer; empty if it has none."""
    try:
        text: str = message.last("result").last("content")[0].last("text")
    except (AttributeError, IndexError):
        return ""
    return text


async def listen(stream: trio.abc.Stream, inputs: Iterable[Malformed], results: Results) -> None:
    """Have all inputs said by the server, one for each call.

    Args:
        stream: a connection to the daemon, which has a server `says` (`saying_server.py`).
        inputs: what it says.
        results: is filled.
    """
    caller = Caller(stream, results)
    last = None
    async with stream:
        await caller.begin()
        for each in inputs:
            await caller.say(each)
            last = each
        if last is not None:
            await caller.finish(last)
