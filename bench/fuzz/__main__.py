"""Malformed, enormous and guided input.

    python -m bench.fuzz --malformed 10000              # so many inputs a side, against a real daemon
    python -m bench.fuzz --malformed 1 --seed 5 --first 468 --side clients     # one of them again
    python -m bench.fuzz --enormous                     # 100 MB lines, million-key objects
    python -m bench.fuzz --guided 600 [--target config] # coverage-guided, needs atheris

Exits with 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from bench.fuzz import enormous, guided
from bench.fuzz.listening import listen
from bench.fuzz.mutation import FROM_CLIENTS, FROM_SERVERS, malformed
from bench.fuzz.talking import Results, summary, talk
from bench.running import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = 1
CORPUS = Path(".cache") / "fuzz"
"""Where the guided fuzzer keeps what it has learnt."""

TOOLS = 5
"""Of the server that says things."""

CALL = (
    b'{"jsonrpc":"2.0","id":"valid","method":"tools/call","params":{"name":"call-category-tool",'
    b'"arguments":{"category":"says","name":"echo","args":{"nonce":"still here"}}}}'
)


class Watched(Daemon):
    """A daemon that tells the longest turn of its loop (`watched.py`)."""

    def _mcpd(self, *words: str) -> list[str]:
        if words[0] != "run":
            return super()._mcpd(*words)
        return [sys.executable, str(Path(__file__).with_name("watched.py")), "turns", *words]


@contextmanager
def daemon() -> Iterator[Path]:
    """A real daemon with the server `says`. Yields its socket; `turns` is in the directory above that one's."""
    directory = Path(tempfile.mkdtemp(prefix="mcpd-"))
    server = {
        "command": sys.executable,
        "args": ["-S", "-E", str(Path(__file__).with_name("saying_server.py"))],
    }
    running = Watched(directory, {"mcpServers": {"says": server}})
    try:
        running.start({"says": TOOLS})
        yield directory / "mcpd" / "mcpd.sock"
    except OSError:
        print(f"the daemon is gone. Its log ends with:\n{running.said()}", file=sys.stderr)
        raise
    finally:
        log = (directory / "log").read_text(errors="replace")
        for line in [
            each for each in log.splitlines() if "a fault of mcpd's own" in each or "Traceback" in each
        ][:5]:
            print(f"the daemon's log: {line}")
        running.stop()
        shutil.rmtree(directory, ignore_errors=True)


async def speak(path: Path, options: argparse.Namespace) -> list[Results]:
    """Both sides, one after the other."""
    done = []

    async def connect() -> trio.abc.Stream:
        return await trio.open_unix_socket(path)

    if options.side != "servers":
        results = Results("clients", options.seed)
        inputs = malformed(options.seed, FROM_CLIENTS, options.malformed, options.first)
        await talk(connect, inputs, results, call=CALL, sign=b"still here")
        done.append(results)
    if options.side != "clients":
        results = Results("servers", options.seed)
        inputs = malformed(options.seed, FROM_SERVERS, options.malformed, options.first)
        await listen(await connect(), inputs, results)
        done.append(results)
    return done


def say_malformed(options: argparse.Namespace) -> int:
    """Returns how many promises were broken."""
    with daemon() as path, enormous.pinging(path) as pinger:
        turns = enormous.Turns(path.parents[1] / "turns")
        # Its start is no matter of input.
        turns.longest()
        begun = time.perf_counter()
        broken = 0
        for results in trio.run(speak, path, options):
            print(*summary(results), sep="\n")
            broken += len(results.faults)
        took = time.perf_counter() - begun
        turn = turns.longest()
        print(f"{took:.1f} s; longest turn of the loop: {turn:.1f} ms")
        print(f"longest that somebody else waited for a ping: {pinger.longest():.1f} ms")
    return broken


def say_enormous() -> int:
    """Returns how many promises were broken."""
    with daemon() as path:
        broken = enormous.measure(path)
    for each in broken:
        print(f"  {each}")
    return len(broken)


def main(argv: list[str]) -> int:
    """Do what is asked for."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--malformed", type=int, metavar="INPUTS", help="so many inputs a side")
    made.add_argument("--side", choices=("clients", "servers"), help="only this one")
    made.add_argument("--seed", type=int, default=SEED)
    made.add_argument("--first", type=int, default=0, help="the number of the first input")
    made.add_argument("--enormous", action="store_true")
    made.add_argument("--guided", type=int, metavar="SECONDS", help="for each target")
    made.add_argument("--target", choices=guided.NAMES)
    made.add_argument("--corpus", type=Path, default=CORPUS)
    options = made.parse_args(argv)
    broken = 0
    if options.malformed:
        broken += say_malformed(options)
    if options.enormous:
        broken += say_enormous()
    if options.guided:
        targets = (options.target,) if options.target else guided.NAMES
        broken += guided.run(options.guided, targets, options.corpus)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
