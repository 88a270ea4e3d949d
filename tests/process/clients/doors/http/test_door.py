"""HTTP as the daemon has it: what its parts are given, its certificate, and how long it drains."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import attrs
import pytest
import trio
import trio.testing
import trustme

from daemon.catalog.offer import Offers
from daemon.clients.doors.http.binding import bind_http
from daemon.clients.doors.http.door import HttpDoor, HttpNeeds
from daemon.clients.doors.tls import tls_context
from daemon.config.config_model import Config
from daemon.config.listen import HttpListen, Listen, Tls
from daemon.config.redaction import Redactors
from daemon.host.notify import Readiness
from daemon.wire.outbox import Outbox
from tests.houses import registry_and_servers

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

    from daemon.clients.client import Principal
    from daemon.wire.outbox import Link

TOKEN = "0123456789abcdef0123"

BOUND = 30.0
"""Seconds that a test may take."""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with bind_http("127.0.0.1:0") as bound:
        yield bound


def a_door(listener: socket.socket, state: Path, http: HttpListen) -> HttpDoor:
    async def serve(link: Link, visitor: Principal) -> None:
        raise AssertionError((link, visitor))

    async def export() -> str:
        return ""

    config = Config(listen=Listen(http=attrs.evolve(http, tokens=TOKEN)))
    registry, _ = registry_and_servers(config)
    needs = HttpNeeds(
        listener=listener,
        tls=None if http.tls is None else tls_context(http.tls),
        state=state,
        redact=Redactors(),
        catalog=registry.catalog,
        offers=Offers(),
        surfaces=("full",),
        export=export,
        readiness=lambda: Readiness.SERVING,
        count=lambda _reason: None,
        serve=serve,
        outbox=Outbox(),
        console=lambda: None,
    )
    return HttpDoor(needs)


async def test_balancers_have_time_to_look_elsewhere(
    listener: socket.socket, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    door = a_door(listener, tmp_path, HttpListen(drain=7))
    await door.drain()
    assert trio.current_time() == 7


async def test_a_certificate_is_renewed_and_a_faulty_one_changes_nothing(
    listener: socket.socket, tmp_path: Path
) -> None:
    paths = tmp_path / "cert.pem", tmp_path / "key.pem"

    def issue() -> bytes:
        made = trustme.CA().issue_cert("localhost")
        made.cert_chain_pems[0].write_to_path(paths[0])
        made.private_key_pem.write_to_path(paths[1])
        return made.cert_chain_pems[0].bytes()

    async def shown() -> bytes:
        stream = await trio.open_ssl_over_tcp_stream("localhost", port, ssl_context=anybody)
        await stream.do_handshake()
        certificate = stream.getpeercert(binary_form=True)
        await trio.aclose_forcefully(stream)
        assert isinstance(certificate, bytes)
        return certificate

    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    port, first = listener.getsockname()[1], ssl.PEM_cert_to_DER_cert(issue().decode())
    door = a_door(listener, tmp_path, HttpListen(tls=Tls(cert=str(paths[0]), key=str(paths[1]))))
    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(door.run)
            assert await shown() == first
            second = ssl.PEM_cert_to_DER_cert(issue().decode())
            await door.renew()
            assert await shown() == second
            paths[0].write_text("none")
            await door.renew()
            assert await shown() == second
            nursery.cancel_scope.cancel()
