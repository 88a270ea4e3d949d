"""What a server asks before its first call is answered before calls are let in, however that goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
import trio
import trio.testing

from daemon.actors.upstream import QUESTIONS_SECONDS
from daemon.clients.notifications import ConnectedClient
from daemon.config.config_model import Instance
from daemon.states import ServerState
from tests.faults.stage import Recorder, Stage, recording, scripted, stage
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from daemon.config.config_model import Server
    from daemon.wire.requests import PeerRequest

ROOTS = b'{"roots":[]}'


class OnlyClient(ConnectedClient):
    """A client with roots, which it does not tell by itself."""

    def __init__(self, it: Stage) -> None:
        self.asked: list[PeerRequest] = []
        self.was_asked = trio.Event()
        self.sees = bool
        it.subscribers.roots.join(self)

    def ask_roots(self, request: PeerRequest) -> None:
        self.asked.append(request)
        self.was_asked.set()

    def tell_roots_changed(self, server: str) -> None:
        raise AssertionError(f"nothing has changed for {server}")


def asking(record: Recorder) -> Server:
    return scripted(record=record.path, requests=["roots/list"])


def order(record: Recorder) -> list[str]:
    """What the server was told, from its first call or answer on."""
    said = [event["message"] for event in record.all("message")]
    words = [message.get("method", "the answer") for message in said]
    return [word for word in words if word in {"the answer", "tools/call"}]


async def test_a_client_that_takes_its_time_is_waited_for(tmp_path: Path) -> None:
    async with recording(tmp_path) as record, stage(asking(record)) as it:
        client = OnlyClient(it)
        with trio.fail_after(PATIENCE):
            await client.was_asked.wait()
            await record.wait_message("tools/list")
            assert it.one.admission is None
            client.asked[0].answer(ROOTS)
            it.outbox.flush()
        await it.ready()
        await it.call("echo").text()
        await record.wait_message("tools/call")
        assert order(record) == ["the answer", "tools/call"]


@pytest.mark.parametrize("workspace", [None, "/srv/app"])
async def test_where_no_client_is_asked_nothing_is_waited_for(tmp_path: Path, workspace: str | None) -> None:
    """It is refused, or told the directory that it works in."""
    async with recording(tmp_path) as record:
        own = None if workspace is None else Instance(label="s@", workspace=workspace, capabilities=None)
        async with stage(attrs.evolve(asking(record), instance=own)) as it:
            await it.ready()
            await it.call("echo").text()
            await record.wait_message("tools/call")
        assert order(record) == ["the answer", "tools/call"]


async def test_a_client_that_never_answers_costs_a_moment(tmp_path: Path) -> None:
    async with recording(tmp_path) as record, stage(asking(record)) as it:
        client = OnlyClient(it)
        with trio.fail_after(PATIENCE):
            await client.was_asked.wait()
            began = trio.current_time()
            await it.reach(ServerState.READY)
        # It may have asked before it was asked for its list, and that may have taken a moment of its own.
        assert trio.current_time() - began >= QUESTIONS_SECONDS
        await it.call("echo").text()
        assert order(record) == ["tools/call"]
