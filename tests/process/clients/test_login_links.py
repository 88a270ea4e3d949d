"""Users whose calls meet a server that wants a login, with a scripted login process."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
import trio
import trio.testing

from daemon.authorization.login_runs import LoginRuns
from daemon.authorization.logins import FileLogins, ServerLogins
from daemon.causes import Cause
from daemon.clients.client import LOCAL_USER, Principal
from daemon.processes.children import Children
from daemon.protocol import CAPABILITIES_KEY
from daemon.states import ServerState
from daemon.upstreams.upstream_access import unavailable
from tests.fakes_upstream import MODERN, Client, Stage, error_of
from tests.process.authorization.login_process import URL
from tests.process.authorization.test_running import PROGRAM, SECONDS
from tests.unit.catalog.samples import status_of
from tests.unit.clients.asking import greet
from tests.unit.clients.permissions.agreeing import answer_to, asked, reply
from tests.unit.config.reading import config_of
from tests.waiting import background, run_to_end

ABLE: dict[str, Any] = {"elicitation": {"url": {}}}
META = {**MODERN, CAPABILITIES_KEY: ABLE}
NAMES = "Tell the user to run `mcpd login alpha`, then try again"
CALL = {"name": "call-category-tool", "arguments": {"category": "alpha", "name": "echo", "args": {"x": 1}}}
STATUS: dict[str, Any] = {"cause": Cause.LOGIN_NEEDED, "reason": "alpha.example wants an OAuth login"}


@attrs.define(eq=False)
class Site:
    """A stage whose first server wants a login."""

    stage: Stage
    logins: LoginRuns
    nursery: trio.Nursery

    async def client(self, capabilities: Any = ABLE, principal: Principal = LOCAL_USER) -> Client:
        client = (await self.stage.connect(self.nursery, principal=principal)).client
        await greet(client, capabilities)
        return client

    def answer(self) -> None:
        """Somebody has logged in, in a browser."""
        run = self.logins.under_way("alpha")
        assert run is not None
        run.answer("http://127.0.0.1:1/callback")

    def started(self, _server: str) -> None:
        """The server is started again with its login."""
        self.stage.alpha.refusal = None
        self.stage.becomes("alpha", ServerState.READY)


@asynccontextmanager
async def wanting(state: Path, *, listed: bool = True) -> AsyncIterator[Site]:
    """Clients of a daemon whose server `alpha` wants a login."""
    servers = {"alpha": {"url": "https://alpha.example/mcp"}, "beta": {"command": "unused"}}
    profile = {"surface": "category"}
    stage = Stage(config_of({"mcpServers": servers, "profiles": {"default": profile}}), listed=listed)
    logins = LoginRuns(ServerLogins(FileLogins(state)), state, Children(), PROGRAM)
    stage.context = msgspec.structs.replace(stage.context, logins=logins)
    stage.becomes("alpha", ServerState.NEEDS_AUTH, **STATUS)
    status = status_of(ServerState.NEEDS_AUTH, **STATUS)
    stage.alpha.refusal, stage.alpha.can_wake = unavailable("alpha", status, 0.0), False
    with trio.fail_after(SECONDS):
        async with background() as nursery:
            site = Site(stage, logins, nursery)
            nursery.start_soon(logins.run, site.started)
            await trio.testing.wait_all_tasks_blocked()
            yield site


async def test_a_client_of_the_handshake_era_is_asked_and_its_call_goes_on(tmp_path: Path) -> None:
    async with wanting(tmp_path) as site:
        client = await site.client()
        await client.ask("tools/call", CALL)
        question = await asked(client)
        params = question["params"]
        assert (params["mode"], params["url"]) == ("url", URL)
        assert (
            params["message"]
            == "mcpd asks: server alpha wants you to log in at as.example. The call continues after the login."
        )
        await reply(client, question, {"action": "accept"})
        assert not site.stage.alpha.sent
        answered = trio.current_time()
        site.answer()
        sent = await site.stage.alpha.wait_sent(1)
        assert sent.arguments == {"x": 1}
        site.stage.answer(sent)
        complete = await client.get()
        assert complete["method"] == "notifications/elicitation/complete"
        assert complete["params"] == {"elicitationId": params["elicitationId"]}
        assert (await answer_to(client))["result"] == {"content": []}
        assert site.stage.log.notes[-1][2] <= trio.current_time() - answered, "the login is no part of the call"


async def test_a_client_of_2026_07_28_is_answered_with_the_link_and_comes_back(tmp_path: Path) -> None:
    async with wanting(tmp_path) as site:
        client = (await site.stage.connect(site.nursery)).client
        needed = (await client.request("tools/call", {**CALL, "_meta": META}))["result"]
        assert needed["resultType"] == "input_required"
        [(key, request)] = needed["inputRequests"].items()
        assert request["method"] == "elicitation/create"
        assert (request["params"]["mode"], request["params"]["url"]) == ("url", URL)
        back = {"inputResponses": {key: {"action": "accept"}}, "requestState": needed["requestState"]}
        await client.ask("tools/call", {**CALL, "_meta": META, **back}, request_id=2)
        await trio.testing.wait_all_tasks_blocked()
        site.answer()
        sent = await site.stage.alpha.wait_sent(1)
        assert b"requestState" not in b"".join(map(bytes, sent.call.params))
        site.stage.answer(sent)
        assert (await answer_to(client, 2))["result"]["content"] == []


@pytest.mark.parametrize("response", [{"action": "decline"}, {"action": "cancel"}, {}])
async def test_who_declines_gets_the_error_and_is_not_asked_again_for_a_while(
    response: dict[str, str], tmp_path: Path
) -> None:
    async with wanting(tmp_path) as site:
        client = await site.client()
        await client.ask("tools/call", CALL)
        await reply(client, await asked(client), response)
        assert NAMES in error_of(await answer_to(client))["message"]
        await client.ask("tools/call", CALL, request_id=2)
        assert NAMES in error_of(await answer_to(client, 2))["message"]
        modern = (await site.stage.connect(site.nursery)).client
        assert NAMES in error_of(await modern.request("tools/call", {**CALL, "_meta": META}))["message"]
        run = site.logins.under_way("alpha")
        if run is not None:
            await run.gone.wait()
        assert not site.stage.alpha.sent


async def test_a_client_that_hangs_up_ends_the_login(tmp_path: Path) -> None:
    async with wanting(tmp_path) as site:
        client = await site.client()
        await client.ask("tools/call", CALL)
        await asked(client)
        run = site.logins.under_way("alpha")
        assert run is not None
        client.close()
        await run.gone.wait()
        assert site.logins.under_way("alpha") is None


@pytest.mark.parametrize(
    ("capabilities", "principal"),
    [
        ({}, LOCAL_USER),
        ({"elicitation": {}}, LOCAL_USER),
        (ABLE, Principal(owner="uid 1000: ")),
        (ABLE, Principal(owner="token ci: ", token="ci")),
    ],
)
async def test_who_cannot_be_asked_or_is_somebody_else_gets_the_error(
    capabilities: dict[str, Any], principal: Principal, tmp_path: Path
) -> None:
    async with wanting(tmp_path) as site:
        client = await site.client(capabilities, principal)
        await client.ask("tools/call", CALL)
        error = error_of(await answer_to(client))
        assert NAMES in error["message"]
        assert (error["state"], error["cause"]) == ("needs_auth", "login-needed")
        assert site.logins.under_way("alpha") is None


async def test_a_server_that_has_never_listed_names_the_command_and_hands_the_link_out_too(
    tmp_path: Path,
) -> None:
    async with wanting(tmp_path, listed=False) as site:
        unable = await site.client({})
        await unable.ask("tools/call", CALL)
        assert NAMES in error_of(await answer_to(unable))["message"]
        client = await site.client()
        await client.ask("tools/call", CALL, request_id=2)
        await reply(client, await asked(client), {"action": "accept"})
        site.stage.lists("alpha", "echo")
        site.answer()
        site.stage.answer(await site.stage.alpha.wait_sent(1))
        assert (await client.get())["method"] == "notifications/elicitation/complete"


# --- A workspace that the daemon's user must not enter, as a process sees it that is not root's --------------


LOOK = """
import os, sys
from daemon.clients.workspace import directory_at
if os.getuid() == 0:
    os.setuid(65534)
print(directory_at(sys.argv[1], implied=False))
"""


def test_a_directory_that_must_not_be_entered_is_no_workspace(tmp_path: Path) -> None:
    tmp_path.chmod(0o600)
    try:
        looked = run_to_end([sys.executable, "-c", LOOK, str(tmp_path)], check=True)
    finally:
        tmp_path.chmod(0o700)
    assert looked.stdout.startswith("(None, ")
    assert "cannot be entered by mcpd's user" in looked.stdout or (
        "cannot be read: Permission denied" in looked.stdout
    )
