"""Tries a small sandbox, so that configurations ask for sandboxes only where they work."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack, suppress

from daemon.errors import CannotStart
from daemon.sandbox import bubblewrap, egress, launch, policy

PROBE_SECONDS = 5.0
"""It takes 25 ms, and on a swapping machine seconds."""

_ERROR_BYTES = 4096


def problem(environ: Mapping[str, str]) -> CannotStart | None:
    """The error of a server's sandbox on this machine, by a trial; None where sandboxes work. Blocks."""
    try:
        bwrap, code = launch.requirements(environ.get("PATH"))
    except CannotStart as error:
        return error
    with ExitStack() as held:
        ours, theirs = map(held.enter_context, socket.socketpair())
        filtering = launch.in_memory("filter", code, held)
        content = bubblewrap.compiled_stub() + bubblewrap.stub_steps(())
        file = launch.in_memory("stub", content, held)
        options = [*bubblewrap.arguments(), "--seccomp", str(filtering)]
        listed = launch.in_memory("options", launch.ended(options), held)
        ours.send(b"\0")
        words = egress.stub_command(theirs.fileno(), file)
        words += [bwrap, "--args", str(listed), "--", "true"]
        passed = (theirs.fileno(), filtering, file, listed)
        try:
            ran = subprocess.run(
                words,
                cwd="/",
                env=environ,
                pass_fds=passed,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=PROBE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return policy.unmade(f"it was not made within {PROBE_SECONDS:g} seconds")
        said = ran.stderr.strip().rpartition("\n")[2].removeprefix("bwrap: ")
        with suppress(BlockingIOError):
            # The stub sends a zero byte with its socket, or the text of its failure.
            said = ours.recv(_ERROR_BYTES, socket.MSG_DONTWAIT).decode(errors="replace").strip("\0") or said
        return policy.unmade(said or "bubblewrap has ended") if ran.returncode else None
