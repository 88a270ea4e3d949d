"""Metrics over real TCP: who is answered with what, and who is cut."""

from __future__ import annotations

import os
import resource
import socket
from contextlib import ExitStack, contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing
from prometheus_client.parser import text_string_to_metric_families

from daemon.clients.client import LOCAL_USER, Principal
from daemon.clients.doors.http.exchange import Refusal
from daemon.clients.doors.http.local import CONNECTIONS, REQUEST_SECONDS, TEXT_FORMAT, require_all_profiles
from daemon.clients.doors.http.reading import HEAD_BYTES
from daemon.errors import Overloaded
from daemon.host.notify import Readiness
from tests.process.actors.exposed import PLAIN, TEXT, body, everything, exposed
from tests.unit.counting.samples import exporter
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


async def turn(clock: trio.testing.MockClock, seconds: float, until: Callable[[], bool]) -> None:
    """Let time pass in steps until something has happened: the kernel tells of connections when it likes."""
    while not until():
        await trio.testing.wait_all_tasks_blocked(0.01)
        clock.jump(seconds)


# --- who is answered with what ------------------------------------------------------------------------------


async def test_a_real_client_scrapes_what_a_parser_understands() -> None:
    with trio.fail_after(PATIENCE):
        async with exposed(exporter().text) as here:
            answer = await here.ask()
    assert (answer.status, answer.headers["content-type"]) == (200, TEXT_FORMAT)
    assert int(answer.headers["content-length"]) == len(body(answer).encode())
    assert answer.headers["connection"] == "close"
    assert len(list(text_string_to_metric_families(body(answer)))) > 20


async def test_scrapes_at_the_same_time_are_all_answered() -> None:
    bodies: list[str] = []
    with trio.fail_after(PATIENCE):
        async with exposed(exporter().text) as here:

            async def scrape() -> None:
                bodies.append(body(await here.ask()))

            async with trio.open_nursery() as nursery:
                for _ in range(3 * CONNECTIONS):
                    nursery.start_soon(scrape)
    assert len(bodies) == 3 * CONNECTIONS
    assert all("mcpd_servers 3.0\n" in text for text in bodies)


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:9464", "127.1.2.3", "[::1]", "[::1]:80"]
)
async def test_every_name_of_this_machine_is_served(host: str) -> None:
    with trio.fail_after(PATIENCE):
        async with exposed() as here:
            answer = await here.ask(Host=host)
    assert (answer.status, body(answer)) == (200, TEXT)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example:9464",
        "10.0.0.1",
        "0.0.0.0",
        "",
        "localhost, evil.example",
        "evil.example@localhost",
        "[::1].evil.example",
        "localhost:80:80",
    ],
)
async def test_a_page_whose_name_was_made_to_mean_this_machine_is_refused(host: str) -> None:
    with trio.fail_after(PATIENCE):
        async with exposed() as here:
            answer = await here.ask(Host=host)
    assert answer.status == 403
    assert TEXT not in body(answer)


async def test_the_name_counts_before_the_path_and_the_path_before_the_method() -> None:
    with trio.fail_after(PATIENCE):
        async with exposed() as here:
            assert (await here.ask("POST", "/other", Host="evil.example")).status == 403
            assert (await here.ask("POST", "/other")).status == 404
            refused = await here.ask("POST")
    assert (refused.status, refused.headers["allow"]) == (405, "GET")


@pytest.mark.parametrize("path", ["/", "/metrics/", "/metric", "/../metrics", "/METRICS", "/favicon.ico"])
async def test_any_other_path_is_not_found_and_told_where_metrics_are(path: str) -> None:
    with trio.fail_after(PATIENCE):
        async with exposed() as here:
            answer = await here.ask(path=path)
    assert (answer.status, body(answer)) == (404, "nothing here: metrics are at /metrics\n")


@pytest.mark.parametrize("readiness", Readiness)
async def test_probes_learn_of_health_and_readiness_by_any_address(readiness: Readiness) -> None:
    with trio.fail_after(PATIENCE):
        async with exposed(readiness=readiness) as here:
            assert (await here.ask(path="/healthz", Host="10.0.0.7")).status == 200
            ready = await here.ask(path="/readyz", Host="10.0.0.7")
            assert ready.status == (200 if readiness is Readiness.SERVING else 503)
            assert (await here.ask("HEAD", "/readyz")).status == ready.status
            assert (await here.ask("POST", "/readyz")).headers["allow"] == "GET, HEAD"
            assert (await here.ask(path="/readyz", Host="evil.example")).status == 403
            assert (await here.say(b"GET /healthz HTTP/1.0\r\n\r\n")).endswith(b"\r\n\r\nok\n")


async def test_a_query_changes_nothing() -> None:
    with trio.fail_after(PATIENCE):
        async with exposed() as here:
            assert (await here.ask(path="/metrics?name[]=x")).status == 200


async def test_head_gets_headers_without_a_body() -> None:
    with trio.fail_after(PATIENCE):
        async with exposed() as here:
            said = await here.say(b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 405 ")
    assert said.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.0\r\n\r\n", b"403"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"505"),
        (b"GET /metrics\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: \x00\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * HEAD_BYTES * 2, b"431"),
        (b"GET /" + b"x" * HEAD_BYTES * 2, b"431"),
        (b'{"jsonrpc":"2.0","id":1,"method":"metrics"}\n\n', b"400"),
    ],
)
async def test_what_is_no_request_is_told_so_and_cut(sent: bytes, status: bytes) -> None:
    with trio.fail_after(PATIENCE):
        async with exposed() as here:
            answer = await here.say(sent)
            assert (await here.ask()).status == 200
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert TEXT.encode() not in answer


BODY = 128 * 1024


async def test_whoever_sends_a_body_still_reads_the_refusal() -> None:
    head = b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % BODY
    with trio.fail_after(PATIENCE):
        async with exposed() as here:
            assert (await here.say(head, b"x" * BODY)).startswith(b"HTTP/1.1 405 ")


async def test_a_request_in_pieces_is_a_request() -> None:
    with trio.fail_after(PATIENCE):
        async with exposed() as here:
            answer = await here.say(*(PLAIN[at : at + 1] for at in range(len(PLAIN))))
    assert answer.endswith(TEXT.encode())


async def test_the_body_of_a_get_is_not_waited_for() -> None:
    with trio.fail_after(PATIENCE):
        async with exposed() as here:
            head = PLAIN.replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\n")
            assert (await here.say(head)).endswith(TEXT.encode())


async def test_a_second_request_on_a_connection_is_not_answered() -> None:
    with trio.fail_after(PATIENCE):
        async with exposed() as here:
            assert (await here.say(PLAIN + PLAIN)).count(b"HTTP/1.1 ") == 1


async def test_a_fault_of_ours_costs_one_answer(said: list[str]) -> None:
    faults = [ZeroDivisionError(), Overloaded("too much at once")]

    async def export() -> str:
        if faults:
            raise faults.pop()
        return TEXT

    with trio.fail_after(PATIENCE):
        async with exposed(export) as here:
            busy, broken, well = await here.ask(), await here.ask(), await here.ask()
    assert (busy.status, body(busy)) == (503, "too much at once\n")
    assert (broken.status, body(broken)) == (500, "a fault of mcpd's own: see its log\n")
    assert (well.status, body(well)) == (200, TEXT)
    assert said == ["a fault of mcpd's own while collecting metrics"]


def test_a_token_that_is_bound_to_profiles_does_not_read_what_names_every_server() -> None:
    require_all_profiles(LOCAL_USER)
    with pytest.raises(Refusal) as refused:
        require_all_profiles(Principal(token="ci", profiles=("default",)))
    assert refused.value.status is HTTPStatus.FORBIDDEN


# --- who is cut ---------------------------------------------------------------------------------------------


async def test_whoever_leaves_early_is_no_matter(said: list[str]) -> None:
    with trio.fail_after(PATIENCE):
        async with exposed() as here:
            for first in (b"", b"GET /met", PLAIN):
                async with await here.connect() as stream:
                    await stream.send_all(first)
                    linger = b"\x01\0\0\0" + bytes(4)
                    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            assert (await here.ask()).status == 200
    assert said == []


async def test_whoever_keeps_a_connection_without_a_request_is_cut(mock_clock: trio.testing.MockClock) -> None:
    async with exposed() as here, await here.connect() as stream:
        await stream.send_all(b"GET /met")
        ended = trio.Event()

        async def read() -> None:
            assert await everything(stream) == b""
            ended.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await turn(mock_clock, REQUEST_SECONDS, ended.is_set)


async def test_a_request_that_drips_in_is_cut_all_the_same(mock_clock: trio.testing.MockClock) -> None:
    """One byte a second: no wait between two bytes is long, all of them together are."""
    async with exposed() as here, await here.connect() as stream:
        assert await drip(stream, mock_clock) < DRIPS


DRIPS = 1000


async def drip(stream: trio.SocketStream, clock: trio.testing.MockClock) -> int:
    """Send a request byte by byte; returns how many were taken."""
    for sent in range(DRIPS):
        try:
            await stream.send_all(PLAIN[sent : sent + 1] if sent < 20 else b"x")
        except trio.BrokenResourceError:
            return sent
        await trio.testing.wait_all_tasks_blocked(0.01)
        clock.jump(1.0)
    return DRIPS


async def test_an_answer_that_nobody_reads_is_cut(mock_clock: trio.testing.MockClock) -> None:
    long = "x" * (64 << 20)
    asked = trio.Event()

    async def export() -> str:
        asked.set()
        return long

    async with exposed(export) as here, await here.connect() as stream:
        await stream.send_all(PLAIN)
        await asked.wait()
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(REQUEST_SECONDS)
        await trio.testing.wait_all_tasks_blocked()
        assert 0 < len(await everything(stream)) < len(long)


async def test_more_connections_than_allowed_wait_until_one_is_cut(mock_clock: trio.testing.MockClock) -> None:
    asked = 0

    async def export() -> str:
        nonlocal asked
        asked += 1
        return TEXT

    async with exposed(export) as here:
        idle = [await here.connect() for _ in range(CONNECTIONS)]
        try:
            async with await here.connect() as late:
                await late.send_all(PLAIN)
                # However long the loop gets: without time passing, nobody is cut, and there is no room.
                await trio.testing.wait_all_tasks_blocked(0.05)
                assert asked == 0
                await turn(mock_clock, REQUEST_SECONDS, lambda: asked == 1)
                assert (await everything(late)).endswith(TEXT.encode())
        finally:
            for each in idle:
                await each.aclose()


async def test_without_descriptors_it_takes_a_breath_and_goes_on(said: list[str]) -> None:
    with trio.fail_after(PATIENCE):
        async with exposed() as here:
            address = await here.address()
            with trio.socket.socket() as client:
                with no_descriptors():
                    await client.connect(address)
                    while not said:
                        await trio.lowlevel.checkpoint()
                await client.send(PLAIN)
                assert await client.recv(12) == b"HTTP/1.1 200"
    assert said[0] == "metrics: cannot accept a connection: Too many open files"


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process cannot open anything for a while."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 8, hard))
        with suppress(OSError):
            while True:
                stack.callback(os.close, os.dup(0))
        yield
