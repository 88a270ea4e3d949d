"""Runs a program in a server's sandbox and network, without a daemon."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import trio

from daemon.config.config_model import WORKSPACE, Server
from daemon.errors import leaf
from daemon.host import paths
from daemon.processes.children import ChildExit, Children
from daemon.sandbox.egress import Egress
from daemon.sandbox.launch import Sandboxes
from daemon.sandbox.policy import DaemonPlaces
from daemon.secrets.commands import RunSecrets
from daemon.upstreams.transports.stdio import child_environment


def run(server: Server, config: Path, words: Sequence[str]) -> int:
    """Run a command in a server's sandbox, and return its exit status; raises `CannotStart`."""
    around = DaemonPlaces.of(os.environ, config, str(paths.state_dir(os.environ)))
    here = server.rewritten(lambda text: text.replace(WORKSPACE, os.getcwd()))  # noqa: PTH109
    try:
        return trio.run(_run, here, around, list(words))
    except BaseExceptionGroup as group:
        raise leaf(group) from None


async def _run(server: Server, around: DaemonPlaces, words: list[str]) -> int:
    server = await RunSecrets(children := Children()).filled(server)
    env, sandboxes = child_environment(os.environ, server.env), Sandboxes(children, around)
    async with sandboxes.serving(), sandboxes.prepared(server, env) as start, trio.open_nursery() as nursery:
        with start.given:
            before = start.words[: len(start.words) - len(server.args) - 1]
            # Forked by the main thread: the sandbox ends with the thread that forked it.
            process = ChildExit(
                subprocess.Popen(  # noqa: ASYNC220
                    [*before, *words], env=dict(start.env), pass_fds=start.passed, stderr=subprocess.STDOUT
                )
            )
        if (listener := await start.listener()) is not None:
            assert server.confined is not None
            egress = Egress(server.name, server.confined.host_rules, lambda _refused: None)
            await nursery.start(egress.serve, listener)
        status = await process.wait()
        nursery.cancel_scope.cancel()
    return status
