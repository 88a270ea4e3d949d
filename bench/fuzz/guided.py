"""Coverage-guided fuzzing with atheris: libFuzzer looks for the bytes that take a new path through our code."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from bench.fuzz.mutation import CONFIGS, FROM_CLIENTS, FROM_SERVERS, written

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]

NAMES = ("framing", "envelope", "config", "arguments")
"""Of the targets; `oracles`, which has them, is imported only under instrumentation."""

LONGEST = 8192
"""Bytes of an input: enough for each seed, and for nesting beyond every limit."""

SLOW = 5
"""Seconds after which one input counts as a hang."""

MISSING = """\
--guided needs atheris, which mcpd does not ask for otherwise (it comes with a compiler's runtime of 35 MB):

    {python} -m pip install 'atheris>=3'
"""


def run(seconds: int, targets: tuple[str, ...], corpus: Path) -> int:
    """Fuzz each target for so long, in a process of its own. Returns how many found something.

    Args:
        seconds: for each target.
        targets: of `NAMES`.
        corpus: a directory that keeps, by target, the inputs that were worth keeping, and what failed.
    """
    if importlib.util.find_spec("atheris") is None:
        print(MISSING.format(python=sys.executable), file=sys.stderr)
        return len(targets)
    return sum(_run_one(seconds, target, corpus / target) for target in targets)


def _run_one(seconds: int, target: str, corpus: Path) -> bool:
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds(target)):
        (corpus / f"seed-{number:03}").write_bytes(seed)
    flags = [
        *(f"-max_total_time={seconds}", f"-max_len={LONGEST}", f"-timeout={SLOW}", "-print_final_stats=1"),
        *(f"-artifact_prefix={corpus.parent}/{target}-found-", "-verbosity=1", "-rss_limit_mb=2048"),
    ]
    command = [sys.executable, "-m", "bench.fuzz.guided", target, *flags, str(corpus)]
    print(f"{target}: {seconds} s, corpus in {corpus}", flush=True)
    done = subprocess.run(command, cwd=ROOT, check=False)
    kept = sum(1 for _ in corpus.iterdir())
    print(
        f"{target}: {'nothing found' if done.returncode == 0 else 'FOUND SOMETHING'}, {kept} inputs kept",
        flush=True,
    )
    return done.returncode != 0


def seeds(target: str) -> list[bytes]:
    """Real input for a target, to begin with."""
    rng = Random(0)
    lines = [written(message, rng) for message in (*FROM_CLIENTS, *FROM_SERVERS)]
    match target:
        case "framing":
            return [bytes([40, 3, 5, 50, 1]) + b"\n".join(lines[:4]), bytes([255, 0]) + lines[0] + b"\n"]
        case "config":
            files = [*(ROOT / "config").glob("*.json"), *(ROOT / "docs").glob("**/*.json")]
            return [path.read_bytes()[:LONGEST] for path in files] + [each.encode() for each in _CONFIGS]
        case "arguments":
            return [bytes([number]) + each.encode() for number in range(5) for each in _ARGUMENTS]
        case _:
            return lines


_CONFIGS = (
    *(json.dumps(config, indent=1) for config in CONFIGS),
    r'{"mcpServers": {"a\ud800": {"command": "x", "start": "\udc00"}}, "i\udc00d": {"lazy": "no"}, "watch": 1}',
    '{"mcpServers": {"a": {"command": "${file:/dev/null}", "env": {"K": "${file:secret}"},},},} // x',
    '\ufeff{/* */"mcpServers": {"a": {"url": "unix:///tmp/x", "restart": {"maxDelay": 1e400}}}}',
)
_ARGUMENTS = (
    '{"args":{"n":1,"args":"x"}}',
    '{"args":"{\\"n\\":1}"}',
    '{"args":{"arguments":{"a":"aaa","list":["x",1,null]}},"n":2}',
    '{"params":{"k1":1.5}}',
    '{"args":{"a":{"b":[]}}}',
)


def main(argv: list[str]) -> None:
    """Within a process of its own: instrument, then fuzz until libFuzzer ends the process."""
    import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore] # noqa: PLC0415 - only here is it needed

    with atheris.instrument_imports(include=["daemon"], enable_loader_override=False):
        oracles = importlib.import_module("bench.fuzz.oracles")
    target: Callable[[bytes], None] = oracles.TARGETS[argv[0]]
    atheris.Setup([sys.argv[0], *argv[1:]], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
