"""Tries a sandbox, so that configurations ask for sandboxes only where they work."""

from __future__ import annotations

import os
from collections.abc import Mapping
from tempfile import TemporaryDirectory

import trio

from daemon.config.config_model import Server
from daemon.config.sandbox_keys import SandboxMode, sandbox_in_force
from daemon.errors import CannotStart, ConnectionLost
from daemon.processes.children import Children
from daemon.sandbox import policy
from daemon.sandbox.launch import Sandboxes

PROBE_SECONDS = 5.0
"""Seconds for a trial: it takes 25 ms, or seconds on a swapping machine."""


def problem(environ: Mapping[str, str]) -> CannotStart | None:
    """The error of a server's sandbox on this machine, by a trial; None where sandboxes work. Blocks."""
    with TemporaryDirectory() as home:
        return trio.run(_tried, {"HOME": home, "PATH": environ.get("PATH", os.defpath)})


async def _tried(environ: Mapping[str, str]) -> CannotStart | None:
    server = Server(name="trial", command="true", confined=sandbox_in_force(SandboxMode.HOME))
    async with Sandboxes(Children(), policy.DaemonPlaces(environ=environ)).serving() as sandboxes:
        try:
            async with sandboxes.prepared(server, environ) as start:
                with trio.move_on_after(PROBE_SECONDS):
                    ran = await trio.run_process(
                        start.words, env=start.env, pass_fds=start.passed, capture_stderr=True, check=False
                    )
                    last = ran.stderr.decode(errors="replace").strip().rpartition("\n")[2]
                    return start.failure(ran.returncode, last)
                return policy.unmade(f"bubblewrap did not make a sandbox within {PROBE_SECONDS:g} seconds")
        except CannotStart as error:
            return error
        except ConnectionLost as error:
            return policy.unmade(str(error))
