"""A unix socket server, spoken to as the actor would."""

import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from daemon.causes import Cause
from daemon.config.config_model import TransportType
from daemon.errors import CannotStart, ConnectionLost, UpstreamLost
from daemon.upstreams.transports.unix import socket_path
from tests.unit.upstreams.transports.serving import connected, context_for


async def listening(
    nursery: trio.Nursery, path: Path, converse: Callable[[trio.SocketStream], Awaitable[object]]
) -> None:
    sock = trio.socket.socket(socket.AF_UNIX)
    await sock.bind(str(path))
    sock.listen()
    nursery.start_soon(trio.serve_listeners, converse, [trio.SocketListener(sock)])


async def echo(stream: trio.SocketStream) -> None:
    """Answers each line with its params; hangs up when asked to."""
    rest = b""
    async for chunk in stream:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            request = json.loads(line)
            if request["params"].get("name") == "hang_up":
                return
            reply = {"jsonrpc": "2.0", "id": request["id"], "result": {"got": request["params"]}}
            await stream.send_all(json.dumps(reply).encode() + b"\n")


async def test_hanging_up_ends_the_connection(nursery: trio.Nursery, tmp_path: Path) -> None:
    await listening(nursery, tmp_path / "s", echo)
    async with connected(context_for(TransportType.UNIX, str(tmp_path / "s"))) as client:
        caller = await client.call("hang_up")
        assert isinstance(caller.loss, UpstreamLost)
        await client.over.wait()
        assert isinstance(client.end, ConnectionLost)


@pytest.mark.parametrize(
    ("name", "cause"),
    [("missing", Cause.SOCKET_MISSING), ("x" * 200, Cause.CANNOT_CONNECT), ("dead", Cause.REFUSED)],
)
async def test_nobody_there(tmp_path: Path, name: str, cause: Cause) -> None:
    path = f"{tmp_path}/{name}"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(f"{tmp_path}/dead")
    with pytest.raises(ConnectionLost, match=f"cannot connect to {path}: ") as raised:
        async with connected(context_for(TransportType.UNIX, path)):
            pass
    assert (raised.value.reason.cause, raised.value.reason.data["place"]) == (cause, path)
    assert ("Connection refused" in str(raised.value)) is (name == "dead")


def test_a_url_is_percent_decoded_and_a_path_is_not() -> None:
    assert socket_path("unix:///run/a%20b") == "/run/a b"
    assert socket_path("/run/a%20b") == "/run/a%20b"


@pytest.mark.parametrize("url", ["", "run/s", "unix://host/s", "http://h/s"])
def test_a_url_that_names_no_socket(url: str) -> None:
    with pytest.raises(CannotStart, match="unix:///path"):
        socket_path(url)
