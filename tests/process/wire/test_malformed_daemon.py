"""Malformed input on the real socket and from a real child, to a whole daemon."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trio

from tests.fuzz import saying_server
from tests.fuzz.listening import listen
from tests.fuzz.mutation import FROM_CLIENTS, FROM_SERVERS, malformed
from tests.fuzz.talking import Results, talk
from tests.houses import house

INPUTS = 300
SEED = 7

SAYS = {"command": sys.executable, "args": ["-S", "-E", str(Path(saying_server.__file__))]}
CALL = (
    b'{"jsonrpc":"2.0","id":"valid","method":"tools/call","params":{"name":"call-category-tool",'
    b'"arguments":{"category":"says","name":"echo","args":{"nonce":"still here"}}}}'
)


@pytest.mark.e2e
async def test_a_real_daemon_keeps_its_promises_to_clients_and_calls_whatever_either_side_says(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, {"mcpServers": {"says": SAYS}}) as at:
        await at.wait_ready("says")

        async def connect() -> trio.abc.Stream:
            return await trio.open_unix_socket(tmp_path / "front")

        of_clients, of_servers = Results("clients", SEED), Results("servers", SEED)
        await talk(connect, malformed(SEED, FROM_CLIENTS, INPUTS), of_clients, call=CALL, sign=b"still here")
        await listen(await connect(), malformed(SEED, FROM_SERVERS, INPUTS), of_servers)
        assert not of_clients.faults + of_servers.faults
        assert of_clients.inputs == of_servers.inputs == INPUTS
