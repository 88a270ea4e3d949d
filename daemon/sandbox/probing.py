"""Tries a small sandbox, so that configurations ask for sandboxes only where they work."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from contextlib import ExitStack

import trio

from daemon.errors import CannotStart, ConnectionLost
from daemon.processes.children import Children
from daemon.sandbox import bubblewrap, launch, policy

PROBE_SECONDS = 5.0
"""Seconds for a trial: it takes 25 ms, or seconds on a swapping machine."""


def problem(environ: Mapping[str, str]) -> CannotStart | None:
    """The error of a server's sandbox on this machine, by a trial; None where sandboxes work. Blocks."""
    return trio.run(_problem, environ)


async def _problem(environ: Mapping[str, str]) -> CannotStart | None:
    async with launch.Sandboxes(Children(), policy.DaemonPlaces()).serving() as sandboxes:
        return await trio.to_thread.run_sync(_tried, environ, sandboxes)


def _tried(environ: Mapping[str, str], sandboxes: launch.Sandboxes) -> CannotStart | None:
    with ExitStack() as held:
        try:
            (bwrap, nsenter), code = launch.requirements(environ.get("PATH"))
            enter, listening = trio.from_thread.run(sandboxes.fork, held).namespaces(())
        except CannotStart as error:
            return error
        except (OSError, ConnectionLost) as error:
            return policy.unmade(str(error))
        held.enter_context(listening)
        filtering = launch.in_memory("filter", code, held)
        options = [*bubblewrap.arguments(), "--seccomp", str(filtering)]
        listed = launch.in_memory("options", launch.ended(options), held)
        try:
            ran = subprocess.run(
                [nsenter, *enter, bwrap, "--args", str(listed), "--", "true"],
                cwd="/",
                env=environ,
                pass_fds=(filtering, listed),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=PROBE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return policy.unmade(f"bubblewrap did not make a sandbox within {PROBE_SECONDS:g} seconds")
        message = ran.stderr.strip().rpartition("\n")[2].removeprefix("bwrap: ")
        return policy.unmade(message or "bubblewrap has ended") if ran.returncode else None
