"""TLS in front of a door: who shakes hands is served as over a plain connection, who does not is let go."""

import socket
import ssl
from pathlib import Path

import pytest
import trio
import trustme
from trio.testing import MockClock

from daemon.clients.doors.tls import HANDSHAKE_SECONDS, STEP_SECONDS, Turns, terminate, tls_context
from daemon.config.listen import Tls
from tests.unit.wire.linked import open_descriptors
from tests.waiting import beside

AUTHORITY, OTHER = trustme.CA(), trustme.CA()
SECONDS = 30


def files(directory: Path, issued: trustme.LeafCert, key: trustme.LeafCert | None = None) -> Tls:
    """A certificate and a key as files."""
    cert = directory / "cert.pem"
    cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    (key or issued).private_key_pem.write_to_path(directory / "key.pem")
    return Tls(cert=str(cert), key=str(directory / "key.pem"))


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    return files(tmp_path, AUTHORITY.issue_cert("localhost"))


def asking(authority: trustme.CA = AUTHORITY) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def client(end: socket.socket, context: ssl.SSLContext) -> trio.SSLStream[trio.SocketStream]:
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(end))
    return trio.SSLStream(stream, context, server_hostname="localhost")


async def shout(plain: socket.socket) -> None:
    """A door that answers once, in capitals."""
    with plain:
        await trio.lowlevel.wait_readable(plain)
        plain.send(plain.recv(1000).upper())


async def never(_: socket.socket) -> None:
    raise AssertionError("nobody has shaken hands")


async def test_a_client_is_served_as_over_a_plain_connection(tls: Tls) -> None:
    ours, theirs = socket.socketpair()
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(terminate, ours, tls_context(tls), shout, Turns())
            stream = client(theirs, asking())
            await stream.send_all(b"hello")
            assert await stream.receive_some() == b"HELLO"
            assert stream.selected_alpn_protocol() == "http/1.1"
            assert await stream.receive_some() == b""
            await stream.aclose()


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\xff\xff" * 100, b""]
)
async def test_what_is_no_handshake_closes_the_connection(tls: Tls, said: bytes) -> None:
    before = open_descriptors()
    ours, theirs = socket.socketpair()
    with trio.fail_after(SECONDS), trio.socket.from_stdlib_socket(theirs) as far:
        await far.send(said)
        far.shutdown(socket.SHUT_WR)
        await terminate(ours, tls_context(tls), never, Turns())
    assert open_descriptors() == before


async def test_a_client_that_does_not_trust_us_closes_the_connection(tls: Tls) -> None:
    ours, theirs = socket.socketpair()
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(terminate, ours, tls_context(tls), shout_if_read, Turns())
            stream = client(theirs, asking(OTHER))
            with pytest.raises(trio.BrokenResourceError):
                await stream.do_handshake()
            await trio.aclose_forcefully(stream)


async def shout_if_read(plain: socket.socket) -> None:
    """Over TLS 1.3 the server learns of a client's refusal after its own handshake."""
    with plain:
        await trio.lowlevel.wait_readable(plain)
        assert plain.recv(1000) == b""


async def test_a_handshake_that_never_ends_is_ended(tls: Tls, autojump_clock: MockClock) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.send(b"\x16\x03\x01")
        began = trio.current_time()
        await terminate(ours, tls_context(tls), never, Turns())
        assert trio.current_time() - began == pytest.approx(HANDSHAKE_SECONDS)
        assert theirs.recv(1) == b""


async def test_a_door_that_is_stopped_leaves_nothing_open(tls: Tls) -> None:
    before = open_descriptors()
    ours, theirs = socket.socketpair()
    context = tls_context(tls)

    async def wait(plain: socket.socket) -> None:
        with plain:
            served.set()
            await trio.sleep_forever()

    served = trio.Event()
    with trio.fail_after(SECONDS):
        stream = client(theirs, asking())
        async with beside(terminate, ours, context, wait, Turns()):
            await stream.do_handshake()
            await served.wait()
        await trio.aclose_forcefully(stream)
    assert open_descriptors() == before


def test_old_protocols_are_refused_and_faulty_files_are_named_and_not_quoted(tls: Tls, tmp_path: Path) -> None:
    assert tls_context(tls).minimum_version == ssl.TLSVersion.TLSv1_2
    both = files(tmp_path, AUTHORITY.issue_cert("localhost"), AUTHORITY.issue_cert("localhost"))
    with pytest.raises(
        ssl.SSLError, match=r"the key in .*key.pem does not belong to the certificate in .*cert.pem"
    ):
        tls_context(both)
    (tmp_path / "key.pem").write_text("s3cr3t")
    with pytest.raises(
        ssl.SSLError, match=r"cert.pem holds no certificate, or .*key.pem holds no unencrypted key"
    ) as raised:
        tls_context(tls)
    assert "s3cr3t" not in str(raised.value)
    for which in ("key", "cert"):
        (tmp_path / f"{which}.pem").unlink()
        with pytest.raises(
            OSError, match=rf"listen.http.tls.{which}: .*/{which}.pem: No such file or directory"
        ):
            tls_context(tls)


async def test_handshakes_have_their_turns_one_after_the_other(tls: Tls, autojump_clock: MockClock) -> None:
    turns, context, done = Turns(), tls_context(tls), 0

    async def shake_hands(nursery: trio.Nursery) -> None:
        nonlocal done
        ours, theirs = socket.socketpair()
        nursery.start_soon(terminate, ours, context, shout, turns)
        stream = client(theirs, asking())
        await stream.send_all(b"hello")
        assert await stream.receive_some() == b"HELLO"
        done += 1
        await stream.aclose()

    began = trio.current_time()
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(shake_hands, nursery)
    assert done == 4
    # Each has two steps at least: what the client says first, and what it says last.
    assert trio.current_time() - began >= 7 * STEP_SECONDS
