"""What clients get for what is no JSON-RPC, or only nearly: thousands of inputs, each with its promise."""

from __future__ import annotations

import trio
import trio.testing

from tests.fakes_upstream import Sent, Stage
from tests.fuzz.mutation import FROM_CLIENTS, malformed
from tests.fuzz.talking import Results, talk

INPUTS = 2000
SEED = 5

CALL = (
    b'{"jsonrpc":"2.0","id":"valid","method":"tools/call","params":{"name":"call-category-tool",'
    b'"arguments":{"category":"alpha","name":"echo","args":{"nonce":"still here"}}}}'
)


async def test_every_malformed_input_gets_what_was_promised_and_the_next_call_is_answered(
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
) -> None:
    stage = Stage()

    def answer(sent: Sent) -> None:
        nursery.start_soon(_answer_soon, stage, sent)

    for upstream in stage.upstreams.values():
        upstream.on_send = answer

    async def connect() -> trio.abc.Stream:
        return stage.arrive(nursery).client.stream

    results = Results("clients", SEED)
    await talk(connect, malformed(SEED, FROM_CLIENTS, INPUTS), results, call=CALL, sign=b"still here")
    assert not results.faults
    assert results.inputs == INPUTS


async def _answer_soon(stage: Stage, sent: Sent) -> None:
    await trio.lowlevel.checkpoint()
    stage.answer(sent, b'{"content":[%b]}' % sent.raw_arguments)
