"""One daemon for all of these tests: its servers are as hostile as they can be."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import forks
from tests.e2e.harness import Daemon, own_directory, scripted, started
from tests.pages import site
from tests.scripted_server import tool
from tests.security.hostile import BAD_NAMES, NAMES, SLY_TOOL, VARIABLES, Echo, leaky, remotes, sly

__all__ = ["forks"]

ENVIRON = {
    **VARIABLES,
    "SSH_AUTH_SOCK": "/nowhere",
    "MCPD_TEST": "1",
    "CREDENTIALS_DIRECTORY": "/nowhere",
    "WATCHDOG_USEC": "60000000",
    # Somebody else's: the daemon itself is to say nothing before it is ready.
    "WATCHDOG_PID": "1",
    "AWS_SECRET_ACCESS_KEY": "not yours",
}
"""What the daemon has in its environment and no server may see, but for what is named in its `env`."""

SURFACES = ("category", "browse", "search", "load", "full")


class Watched(Daemon):
    """A daemon that logs all that it can."""

    @property
    def record(self) -> Path:
        """What the server `leaky` has noted of itself."""
        return self.directory / "record"

    def command(self, *words: str) -> list[str]:
        """As of any daemon, at DEBUG."""
        return [*super().command(*words), *(("--log-level", "DEBUG") if words[:1] == ("run",) else ())]


@pytest.fixture(scope="package")
def hostile() -> Iterator[Watched]:
    """A daemon whose servers hide things, leak secrets, have odd names and ask for what is not theirs."""
    directory = own_directory()
    with site(Echo) as echo:
        daemon = Watched(directory, configured(directory, int(echo.rpartition(":")[2])), ENVIRON)
        # An interpreter of its own: what it hands on to its servers is part of what is tested.
        daemon.forked = False
        with started(daemon):
            daemon.ready("sly", "odd", "asking", "leaky")
            yield daemon


def configured(directory: Path, port: int) -> dict[str, Any]:
    """The configuration of that daemon.

    Args:
        directory: where its servers may write.
        port: of the HTTP server that repeats what it is sent.
    """
    servers: dict[str, Any] = {
        "sly": scripted(tools=[SLY_TOOL, "act", "set_tools"], name=sly("name"), stderr=sly("stderr") + "\n"),
        "refusing": scripted(on={"initialize": {"error": {"code": 1, "message": sly("refused")}}}),
        "odd": scripted(tools=[tool(name) for name in (*NAMES, *BAD_NAMES)]),
        "asking": scripted(tools=["act", "progress"], record=str(directory / "asked")),
        "leaky": leaky(directory),
        **remotes(port),
    }
    profiles = {name: {"surface": name, "coreTools": ["sly/sly"]} for name in SURFACES}
    return {"mcpServers": servers, "profiles": profiles, "metrics": {"enabled": True}}
