"""Malformed input, said to a real daemon by a client and by a server, or as requests over HTTP (R10).

    python -m tests.fuzz --malformed 10000              so many inputs a side
    python -m tests.fuzz --malformed 25000 --side http  so many requests over HTTP
    python -m tests.fuzz --malformed 1 --seed 5 --first 468 --side clients     one of them again

Exits with 1 if a promise was broken. What is malformed, and what is to become of it: `tests/fuzz`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import attrs
import trio

from bench.reliability.stage import at_work
from tests.fuzz import requesting, saying_server
from tests.fuzz.listening import listen
from tests.fuzz.mutation import FROM_CLIENTS, FROM_SERVERS, malformed
from tests.fuzz.talking import OWN_FAULTS, Results, summary, talk

SEED = 1
SIDES = ("clients", "servers")

SAYS = {"command": sys.executable, "args": ["-S", "-E", str(Path(saying_server.__file__))]}
CALL = (
    b'{"jsonrpc":"2.0","id":"valid","method":"tools/call","params":{"name":"call-category-tool",'
    b'"arguments":{"category":"says","name":"echo","args":{"nonce":"still here"}}}}'
)


@attrs.frozen(kw_only=True)
class Outcome:
    """What became of all inputs."""

    results: list[Results]
    stall: float
    """Longest seconds that the daemon's loop did not look at its descriptors."""
    logged: list[str]
    """Lines of the daemon's log that tell of faults of its own."""

    @property
    def faults(self) -> int:
        """How many promises were broken."""
        return sum(len(each.faults) for each in self.results) + len(self.logged)


def fuzz(count: int, *, seed: int = SEED, first: int = 0, sides: tuple[str, ...] = SIDES) -> Outcome:
    """Say so many inputs of a seed, from the number `first` on; one side after the other."""
    with at_work({"says": SAYS}) as daemon:
        daemon.look()
        results = [trio.run(_speak, daemon.socket, side, seed, count, first) for side in sides]
        stall = daemon.look()["stall"]
        lines = daemon.said().splitlines()
    logged = [line for line in lines if any(sign in line for sign in OWN_FAULTS)]
    return Outcome(results=results, stall=stall, logged=logged)


async def _speak(path: Path, side: str, seed: int, count: int, first: int) -> Results:
    async def connect() -> trio.abc.Stream:
        return await trio.open_unix_socket(path)

    results = Results(side, seed)
    if side == "clients":
        inputs = malformed(seed, FROM_CLIENTS, count, first)
        await talk(connect, inputs, results, call=CALL, sign=b"still here")
    else:
        await listen(await connect(), malformed(seed, FROM_SERVERS, count, first), results)
    return results


def main(argv: list[str]) -> int:
    """Say what is asked for, and print what came of it."""
    made = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--malformed", type=int, metavar="INPUTS", required=True, help="so many inputs a side")
    made.add_argument("--side", choices=(*SIDES, "http"), help="only this one")
    made.add_argument("--seed", type=int, default=SEED)
    made.add_argument("--first", type=int, default=0, help="the number of the first input")
    options = made.parse_args(argv)
    sides = (options.side,) if options.side else SIDES
    chosen = {"seed": options.seed, "first": options.first}
    if options.side == "http":
        found = Outcome(results=[requesting.fuzz(options.malformed, **chosen)], stall=0.0, logged=[])
    else:
        found = fuzz(options.malformed, sides=sides, **chosen)
    for results in found.results:
        print(*summary(results), sep="\n")
    print(*(f"the daemon's log: {line}" for line in found.logged), sep="\n", end="")
    print(f"longest that the loop was away from its descriptors: {found.stall * 1000:.1f} ms")
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
