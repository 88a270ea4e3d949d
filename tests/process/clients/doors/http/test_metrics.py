"""Metrics over real TCP: who is answered with what, and who is cut."""

from collections.abc import Callable
from http import HTTPStatus

import pytest
import trio
import trio.testing
from prometheus_client.parser import text_string_to_metric_families

from daemon.clients.client import LOCAL_USER, Principal
from daemon.clients.doors.http.local import CONNECTIONS, REQUEST_SECONDS, TEXT_FORMAT, require_all_profiles
from daemon.clients.doors.http.reading import Refusal
from daemon.errors import Overloaded
from daemon.host.notify import Readiness
from tests.process.actors.exposed import PLAIN, TEXT, body, everything, exposed
from tests.unit.cases import cases
from tests.unit.counting.samples import exporter
from tests.waiting import PATIENCE


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


@cases("method", "path", "host", "status")
async def test_the_name_counts_before_the_path_and_the_path_before_the_method(
    method: str, path: str, host: str, status: int
) -> None:
    with trio.fail_after(PATIENCE):
        async with exposed() as here:
            answer = await here.ask(method, path, Host=host)
    assert answer.status == status
    assert (body(answer) == TEXT) is (status == 200)
    assert ("metrics are at /metrics" in body(answer)) is (status == 404)


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
    assert (broken.status, body(broken)) == (500, "internal error in mcpd: see its log\n")
    assert (well.status, body(well)) == (200, TEXT)
    assert said == ["internal error in mcpd while collecting metrics"]


def test_a_token_that_is_bound_to_profiles_does_not_read_what_names_every_server() -> None:
    require_all_profiles(LOCAL_USER)
    with pytest.raises(Refusal) as refused:
        require_all_profiles(Principal(token="ci", profiles=("default",)))
    assert refused.value.status is HTTPStatus.FORBIDDEN


# --- who is cut ---------------------------------------------------------------------------------------------


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
