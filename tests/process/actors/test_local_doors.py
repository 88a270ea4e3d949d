"""Where metrics are served: the address that the configuration names, whatever stands in the way."""

import os
import socket
from collections.abc import AsyncIterator
from contextlib import closing

import attrs
import pytest
import trio
import trio.testing

from daemon.actors.local_doors import RETRY_SECONDS, ConsoleOpening
from daemon.wire.outbox import Outbox
from tests.process.actors.exposed import configured, exposed
from tests.unit.clients.doors.http.test_asgi import Recorded, whole
from tests.unit.clients.doors.http.visiting import HttpClient
from tests.waiting import PATIENCE, beside

# --- where it listens ---------------------------------------------------------------------------------------


async def test_without_the_switch_or_without_an_address_nothing_listens() -> None:
    with trio.fail_after(PATIENCE):
        for first in (configured(enabled=False), configured(listen=None)):
            async with exposed(first=first) as here:
                await trio.testing.wait_all_tasks_blocked()
                assert here.exposition.address.value is None


async def test_it_follows_the_configuration() -> None:
    with trio.fail_after(PATIENCE):
        async with exposed(first=configured(enabled=False)) as here:
            here.config.set(configured())
            first = await here.address()
            here.config.set(attrs.evolve(here.config.value))
            assert (await here.ask()).status == 200
            here.config.set(configured("localhost:0"))
            await here.exposition.address.wait_until(lambda address: address not in {None, first})
            assert (await here.ask()).status == 200
            second = await here.address()
            here.config.set(configured(enabled=False))
            await here.exposition.address.wait_until(lambda address: address is None)
            with pytest.raises(OSError, match=r"."):
                await trio.open_tcp_stream(*second)


async def test_it_listens_on_the_loopback_of_ipv6_if_there_is_one_and_else_says_so(said: list[str]) -> None:
    with trio.fail_after(PATIENCE):
        async with exposed(first=configured("[::1]:0")) as here:
            if has_ipv6():
                assert (await here.address())[0] == "::1"
                assert (await here.ask()).status == 200
            else:
                await trio.testing.wait_all_tasks_blocked()
                assert "cannot serve metrics on [::1]:0" in said[0]


def has_ipv6() -> bool:
    """Machines and containers without are common."""
    try:
        with closing(socket.create_server(("::1", 0), family=socket.AF_INET6)):
            return True
    except OSError:
        return False


async def test_an_address_that_is_taken_is_told_once_and_had_once_it_is_free(
    said: list[str], mock_clock: trio.testing.MockClock
) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    with closing(taken):
        async with exposed(first=configured(f"127.0.0.1:{port}")) as here:
            for _ in range(3):
                await trio.testing.wait_all_tasks_blocked()
                assert here.exposition.address.value is None
                mock_clock.jump(RETRY_SECONDS)
            await trio.testing.wait_all_tasks_blocked()
            (line,) = said
            assert f"cannot serve metrics on 127.0.0.1:{port}: Address already in use. mcpd retries" in line
            taken.close()
            mock_clock.jump(RETRY_SECONDS)
            assert await here.address() == ("127.0.0.1", port)
            assert (await here.ask()).status == 200


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "10.0.0.1:9464", "nonsense", "127.0.0.1:99999"])
async def test_an_address_that_no_configuration_may_have_is_not_opened(listen: str, said: list[str]) -> None:
    with trio.fail_after(PATIENCE):
        async with exposed(first=configured(listen)) as here:
            await trio.testing.wait_all_tasks_blocked()
            assert here.exposition.address.value is None
    assert said[0] == "internal error in mcpd while serving metrics"
    assert f"cannot serve metrics on {listen}" in said[1]


# --- the console where HTTP is not served --------------------------------------------------------------------


BOUND = 30.0
"""Seconds that a test may take."""


@pytest.fixture
async def opening() -> AsyncIterator[ConsoleOpening]:
    made = ConsoleOpening(lambda: Recorded(whole), Outbox())
    with trio.fail_after(BOUND):
        async with beside(made.run):
            yield made


async def ask(opening: ConsoleOpening, path: str, **headers: str) -> tuple[int, bytes]:
    port = int((await opening.address()).rpartition(":")[2])
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        answer = await HttpClient(stream).ask("GET", path, {"host": f"127.0.0.1:{port}", **headers})
    return answer.status, answer.body


async def test_pages_are_served_once_somebody_has_asked_and_the_port_stays(opening: ConsoleOpening) -> None:
    assert (await opening.address()).startswith("http://127.0.0.1:")
    assert await ask(opening, "/ui") == (404, b"whole")
    assert await opening.address() == await opening.address()


@pytest.mark.parametrize("path", ["/mcp", "/metrics", "/healthz", "/", "/uix"])
async def test_nothing_else_is(opening: ConsoleOpening, path: str) -> None:
    status, body = await ask(opening, path)
    assert status == 404
    assert b"the console is at /ui" in body


async def test_a_port_that_cannot_be_had_is_told_and_tried_again(
    opening: ConsoleOpening, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as refusing:
        # An address is no directory.
        refusing.setattr("daemon.actors.local_doors.listen_at", os.listdir)
        with pytest.raises(OSError, match="No such file or directory"):
            await opening.address()
    assert (await opening.address()).startswith("http://127.0.0.1:")


async def test_pages_of_others_are_refused(opening: ConsoleOpening) -> None:
    assert (await ask(opening, "/ui", host="evil.example"))[0] == 403
    assert (await ask(opening, "/ui", origin="http://evil.example"))[0] == 403
    assert (await ask(opening, "/ui", origin="http://127.0.0.1:1"))[0] == 403
