"""mcpd as the client of the conformance suite: a daemon for each scenario, with its server as the only one.

Each scenario makes the calls that the Python SDK's client makes in it, but through the daemon
(`conformance/driver.py` forwards the suite's data).
"""

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import trio

from tests.e2e.conforming import SDK, opened
from tests.e2e.forking import Forker
from tests.e2e.harness import ROOT, Daemon, own_directory, started
from tests.e2e.raw_http import HttpDoor
from tests.waiting import WAIT, beside, eventually

DRIVER = Path(__file__).parent / "conformance" / "driver.py"
CLIENT = SDK / ".github" / "actions" / "conformance" / "client.py"

BROWSER = Path(__file__).with_name("browser.py")

LOGGING_IN = "auth/"
"""Scenarios in which the client must get a token: they run `mcpd login`, and make as many calls with `mcpd
call` as the SDK's client makes."""

WITHOUT_USERS = {
    "auth/client-credentials-jwt": "client-credentials",
    "auth/client-credentials-basic": "client-credentials",
    "auth/enterprise-managed-authorization": "enterprise-managed",
    "auth/wif-jwt-bearer": "workload-identity",
}
"""Scenarios in which mcpd logs in by itself, each with the type of `auth`."""

OF_SUITE = {"client_id": "clientId", "client_secret": "clientSecret", "private_key_pem": "privateKey"}
"""The suite's names of keys of `auth`."""

METADATA_URL = "https://conformance-test.local/client-metadata.json"
"""The suite's client id metadata document, which the SDK's client names in each scenario."""

LOGINS = 3
"""Most logins: one, and more if a call needs more scopes."""

PATIENT = {"probe": 30}
"""A long probe: a late answer would mean the older era, which is not tested here."""

AT_ONCE = 4
"""Daemons at a time: the suite starts all scenarios at once, and gives each 30 s."""

SDK_CLIENT = """
import runpy, sys
import mcp.client.auth.extensions.client_credentials, mcp.client.auth.extensions.identity_assertion
import mcp.client.client, mcp.client.streamable_http

def main():
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Forks the SDK's client after its imports."""


class Drivers:
    """Serves the drivers of one run of the suite."""

    def __init__(self, clients: Forker) -> None:
        self._clients = clients
        self._places = trio.CapacityLimiter(AT_ONCE)

    async def serve(self, stream: trio.SocketStream) -> None:
        """Run the job of one driver."""
        async with stream:
            line = b""
            while not line.endswith(b"\n"):
                line += await stream.receive_some()
            status, log = await self._perform(json.loads(line))
            await stream.send_all(json.dumps({"status": status, "log": log}).encode() + b"\n")

    async def _perform(self, job: dict[str, Any]) -> tuple[int, str]:
        scenario = job["environ"]["MCP_CONFORMANCE_SCENARIO"]
        if scenario in WITHOUT_USERS:
            return await self._log_in_by_itself(job, scenario)
        if scenario.startswith(LOGGING_IN):
            return await self._log_in(job)
        door = HttpDoor()
        suite = {"type": "http", "url": job["url"], "timeouts": PATIENT}
        config = {"mcpServers": {"suite": suite}, "listen": door.listen}
        daemon = Daemon(own_directory(), config, {})
        async with self._running(daemon):
            return await self._call(daemon, door, job["environ"]), daemon.said()

    async def _log_in(self, job: dict[str, Any]) -> tuple[int, str]:
        """Log in as a user whose agent's call was refused for lack of a login."""
        given = json.loads(job["environ"].get("MCP_CONFORMANCE_CONTEXT", "{}"))
        oauth = {"clientId": given.get("client_id"), "clientSecret": given.get("client_secret")}
        known = {key: value for key, value in oauth.items() if value} or {"metadataUrl": METADATA_URL}
        suite = {"type": "http", "url": job["url"], "timeouts": PATIENT, "oauth": known}
        browser = f"{sys.executable} -S {BROWSER} %s"
        daemon = Daemon(own_directory(), {"mcpServers": {"suite": suite}}, {"BROWSER": browser})
        async with self._running(daemon):
            return await trio.to_thread.run_sync(_use_logged_in, daemon), daemon.said()

    async def _log_in_by_itself(self, job: dict[str, Any], scenario: str) -> tuple[int, str]:
        """Wait until the server is ready without a user, and call its first tool."""
        given = json.loads(job["environ"]["MCP_CONFORMANCE_CONTEXT"])
        directory = own_directory()
        auth: dict[str, Any] = {"type": WITHOUT_USERS[scenario], "issuer": await _issuer_of(job["url"])}
        auth |= {ours: given[theirs] for theirs, ours in OF_SUITE.items() if theirs in given}
        if token := given.get("idp_id_token", given.get("valid_jwt")):
            (directory / "token").write_text(token)
            auth["tokenFile"] = "token"
        if endpoint := given.get("idp_token_endpoint"):
            auth["idp"] = {"tokenEndpoint": endpoint, "clientId": given["idp_client_id"]}
        suite = {"type": "http", "url": job["url"], "timeouts": PATIENT, "auth": auth}
        daemon = Daemon(directory, {"mcpServers": {"suite": suite}}, {})
        async with self._running(daemon):
            return await trio.to_thread.run_sync(_use, daemon), daemon.said()

    @asynccontextmanager
    async def _running(self, daemon: Daemon) -> AsyncIterator[None]:
        async with self._places:
            life = started(daemon)
            await trio.to_thread.run_sync(life.__enter__)
            try:
                yield
            finally:
                await trio.to_thread.run_sync(life.__exit__, *sys.exc_info())

    async def _call(self, daemon: Daemon, door: HttpDoor, environ: dict[str, str]) -> int:
        await trio.to_thread.run_sync(_up, daemon)
        async with opened(door, "default", "full") as url:
            needed = {"PATH": os.environ["PATH"], **environ}
            client = self._clients.fork([str(CLIENT), url], needed, ROOT, daemon.log)
            return await trio.to_thread.run_sync(client.wait, WAIT)


async def _issuer_of(url: str) -> str:
    """The authorization server of the suite's server, which an administrator knows."""
    place = httpx2.URL(url)
    async with httpx2.AsyncClient(trust_env=False) as client:
        found = await client.get(place.copy_with(path=f"/.well-known/oauth-protected-resource{place.path}"))
    return str(found.json()["authorization_servers"][0])


def _up(daemon: Daemon) -> None:
    """Wait for the server, which is `degraded` in scenarios where it offers nothing."""
    eventually(lambda: daemon.ask("status")["servers"]["suite"]["state"] in {"ready", "degraded"}, daemon.said)


def _use(daemon: Daemon) -> int:
    """Call the first tool."""
    _up(daemon)
    tool = next(iter(daemon.ask("tools", server="suite")["tools"]))
    return int(daemon.ask("call", server="suite", tool=tool, arguments={}).get("isError", False))


def _use_logged_in(daemon: Daemon) -> int:
    """Log in, and call the first tool, again after another login if the answer asks for one."""
    for _ in range(LOGINS):
        done = daemon.outcome("login", "suite", "--json", "--timeout", "20")
        daemon.note(done.stderr)
        if not done.stdout:
            return 1
        if done.returncode:
            # There is a login, and the server wants another one.
            continue
        tools = json.loads(done.stdout)["tools"]
        if not tools or "mcpd login" not in json.dumps(
            daemon.ask("call", server="suite", tool=tools[0], arguments={})
        ):
            return 0
    return 0


@asynccontextmanager
async def driven(directory: Path) -> AsyncIterator[dict[str, str]]:
    """The environment of a suite that runs `DRIVER`."""
    clients = Forker(SDK_CLIENT)
    await trio.to_thread.run_sync(clients.start)
    path = directory / "drivers"
    try:
        with trio.socket.socket(trio.socket.AF_UNIX) as socket:
            await socket.bind(str(path))
            socket.listen()
            async with beside(trio.serve_listeners, Drivers(clients).serve, [trio.SocketListener(socket)]):
                yield {**os.environ, "MCPD_TEST_SOCKET": str(path)}
    finally:
        clients.stop()
