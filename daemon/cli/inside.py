"""A program in a server's sandbox, with its network, and without a daemon."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import trio

from daemon.config.config_files import FOLDER
from daemon.config.config_model import Server
from daemon.config.hosts import HostRules
from daemon.host import paths
from daemon.sandbox.egress import Egress
from daemon.sandbox.launch import prepared
from daemon.sandbox.policy import DaemonPlaces
from daemon.upstreams.transports.stdio import child_environment


def run(server: Server, config: Path, words: Sequence[str]) -> int:
    """Run a command line in the server's place, and return its exit status; raises `CannotStart`."""
    private = (*(config.with_name(each) for each in ("env", FOLDER)), config, paths.state_dir(os.environ))
    around = DaemonPlaces(environ=os.environ, private=tuple(map(str, private)))
    return trio.run(_run, server, around, list(words))


async def _run(server: Server, around: DaemonPlaces, words: list[str]) -> int:
    env = child_environment(os.environ, server.env)
    async with prepared(server, env, around) as start, trio.open_nursery() as nursery:
        with start.given:
            before = start.words[: len(start.words) - len(server.args) - 1]
            process = await trio.lowlevel.open_process(
                [*before, *words], env=dict(start.env), pass_fds=start.passed, stderr=subprocess.STDOUT
            )
        if (listener := await start.listener()) is not None:
            assert server.confined is not None
            rules = HostRules(allowed=server.confined.hosts, denied=server.confined.network.denied_domains)
            egress = Egress(server.name, rules, lambda *_refused: None)
            await nursery.start(egress.serve, listener)
        status: int = await process.wait()
        nursery.cancel_scope.cancel()
    return status
