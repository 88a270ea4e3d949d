"""A conversation in which the client says what it should not, and everything that comes back is checked."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import attrs
import trio

from tests.fuzz.promises import Due, Members, Number, Promise, cancels, read, to_client
from tests.waiting import PATIENCE, beside

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from tests.fuzz.mutation import Malformed

    Connect = Callable[[], Awaitable[trio.abc.Stream]]

OWN_FAULTS = ("internal error in mcpd", "Traceback")
"""What the daemon's log says of a fault that is the daemon's."""

PER_CONNECTION = 60
"""Inputs and, about, errors of one connection: a client is cut off after a hundred."""


READ = 1 << 20

PIECES = 20
"""A batch is written in so many pieces at most, cut anywhere."""


@attrs.define
class Results:
    """What became of the inputs of one side."""

    side: str
    seed: int
    inputs: int = 0
    outcomes: Counter[str] = attrs.field(factory=Counter)
    """Lines by what they got; an input with line ends is several."""
    faults: list[str] = attrs.field(factory=list)
    """What was not as promised, each with the number that makes it again."""

    def blame(self, each: Malformed, what: str) -> None:
        """Remember a broken promise."""
        self.faults.append(f"{self.side}, --seed {self.seed} --first {each.number} ({each.kind}): {what}")


@attrs.define
class _Owed:
    """A promise that is still open."""

    number: int
    promise: Promise
    source: Malformed


class Talk:
    """One connection's worth of inputs, each followed by a ping that has to be answered."""

    def __init__(self, inputs: list[Malformed], results: Results) -> None:
        self._inputs = inputs
        self._results = results
        self._owed: list[_Owed] = []
        self._next_ping = 0
        # The configuration has these names, or else the client is denied everything: an answer, too.
        self._denied = any(b"hello" in each.data or b"\\u" in each.data for each in inputs)
        self._free: set[str] = set()

    def said(self) -> bytes:
        """All that is said."""
        return b"".join(each.data + b"\n" + _ping(number) + b"\n" for number, each in enumerate(self._inputs))

    def expect(self) -> None:
        """Work out what is owed for it."""
        for number, each in enumerate(self._inputs):
            self._results.inputs += 1
            for line in each.data.split(b"\n"):
                promise = to_client(line, mend=True)
                called_off = cancels(line)
                if called_off is not None:
                    self._free.add(called_off)
                kind = "skipped" if not line.strip() else promise.due.value
                codes = " or ".join(map(str, sorted(promise.codes)))
                self._results.outcomes[f"{kind} {codes}".strip()] += 1
                if promise.due is not Due.NOTHING:
                    self._owed.append(_Owed(number, promise, each))

    def hears(self, line: bytes) -> None:
        """Check one line of the other side."""
        message = _readable(line)
        if message is None:
            self._blame(f"the answer is not JSON-RPC: {line[:200]!r}")
        elif message.has("method"):
            return
        elif message.last("id") == f"ping-{self._next_ping}" and not isinstance(message.last("id"), Number):
            self._pinged(message)
        elif not self._settles(message):
            self._blame(f"nobody asked for {line[:200]!r}")

    @property
    def is_over(self) -> bool:
        """Whether all that was owed has come."""
        return self._next_ping == len(self._inputs) and not self._open()

    def hangs(self) -> None:
        """Blame whoever has not been answered."""
        for owed in self._open()[:3]:
            self._results.blame(owed.source, f"no answer: {owed.promise}")
        if self._next_ping < len(self._inputs):
            self._blame("the ping after it is not answered")

    def _open(self) -> list[_Owed]:
        return [each for each in self._owed if not (each.promise.optional or each.promise.ids & self._free)]

    def _pinged(self, message: Members) -> None:
        if not message.has("result") and not self._denied:
            self._blame("the ping after it is refused")
        late = [each for each in self._owed if each.number <= self._next_ping and each.promise.due is Due.ERROR]
        for each in late:
            self._owed.remove(each)
            if not each.promise.optional:
                self._results.blame(each.source, f"not refused: {each.promise}")
        self._next_ping += 1

    def _settles(self, message: Members) -> bool:
        """Refusals come at once and in order; whatever else carries an id may answer something earlier."""
        fitting = [
            each for each in self._owed if each.number <= self._next_ping and each.promise.admits(message)
        ]
        if fitting:
            self._owed.remove(min(fitting, key=_patience))
        return bool(fitting)

    def _blame(self, what: str) -> None:
        self._results.blame(self._inputs[min(self._next_ping, len(self._inputs) - 1)], what)


def _patience(owed: _Owed) -> int:
    """Who gets an answer that several may have asked for: lowest first."""
    return (owed.promise.due is not Due.ERROR) + owed.promise.optional


def _ping(number: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":"ping-%d","method":"ping"}' % number


def _readable(line: bytes) -> Members | None:
    """A message that keeps to JSON-RPC itself; None if it does not."""
    try:
        message = read(line.decode())
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, Members) or message.last("jsonrpc") != "2.0":
        return None
    return message


def batches(inputs: Iterable[Malformed]) -> Iterator[list[Malformed]]:
    """Inputs, as many together as one connection may get wrong."""
    batch: list[Malformed] = []
    errors = 0
    for each in inputs:
        cost = sum(to_client(line, mend=True).due is Due.ERROR for line in each.data.split(b"\n"))
        if batch and (errors + cost > PER_CONNECTION or len(batch) >= PER_CONNECTION):
            yield batch
            batch, errors = [], 0
        batch.append(each)
        errors += cost
    if batch:
        yield batch


async def talk(
    connect: Connect, inputs: Iterable[Malformed], results: Results, *, call: bytes, sign: bytes
) -> None:
    """Say all inputs, over as many connections as it takes, and after each of these a valid call.

    Args:
        connect: opens a connection.
        inputs: what is said.
        results: is filled.
        call: a sound request, said on a connection of its own.
        sign: what its answer has to contain.
    """
    rng = Random(results.seed)
    for batch in batches(inputs):
        spoken = Talk(batch, results)
        spoken.expect()
        await _converse(await connect(), spoken, rng)
        heard = await _ask(await connect(), call)
        if sign not in heard:
            results.blame(batch[-1], f"the next valid call got {heard[:200]!r}")


async def _converse(stream: trio.abc.Stream, spoken: Talk, rng: Random) -> None:
    async with stream, beside(_say, stream, spoken.said(), rng):
        rest = b""
        while not spoken.is_over:
            chunk: bytes | bytearray = b""
            with trio.move_on_after(PATIENCE):
                chunk = await stream.receive_some(READ)
            if not chunk:
                spoken.hangs()
                break
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                spoken.hears(line)


async def _say(stream: trio.abc.Stream, data: bytes, rng: Random) -> None:
    places = sorted(rng.randrange(len(data)) for _ in range(rng.randrange(PIECES)))
    for start, end in zip([0, *places], [*places, len(data)], strict=True):
        try:
            await stream.send_all(data[start:end])
        except trio.BrokenResourceError:
            return


async def _ask(stream: trio.abc.Stream, call: bytes) -> bytes:
    heard = b""
    async with stream:
        with trio.move_on_after(PATIENCE):
            await stream.send_all(call + b"\n")
            while b"\n" not in heard:
                chunk = await stream.receive_some(READ)
                if not chunk:
                    break
                heard += chunk
    return heard


def summary(results: Results) -> Iterator[str]:
    """What is printed."""
    yield f"{results.side}: {results.inputs:,} inputs (seed {results.seed}), {len(results.faults)} faults"
    for outcome, count in results.outcomes.most_common():
        yield f"    {count:7,} {outcome}"
    for fault in results.faults[:20]:
        yield f"  {fault}"
