"""Calls that take too long: silent, slow, or in line; a wait for a client is no silence."""

import attrs
import pytest
import trio

from daemon.errors import UpstreamTimeout
from daemon.wire.requests import PeerRequest
from tests.unit.upstreams.expiring import Served
from tests.unit.upstreams.test_admission import Caller

pytestmark = pytest.mark.usefixtures("autojump_clock")


@attrs.define(eq=False)
class Patient(Caller):
    """A caller that takes what it is asked, and takes its time."""

    before: list[PeerRequest] = attrs.field(factory=list)

    def asked(self, question: PeerRequest) -> None:
        self.before.append(question)


async def test_a_silent_call_is_given_up(nursery: trio.Nursery) -> None:
    served, caller = Served(call=10), Caller()
    await served.begin(nursery)
    uid = served.call(caller)
    await trio.sleep(12)
    assert isinstance(caller.ended[0], UpstreamTimeout)
    assert "timeouts.call" in str(caller.ended[0])
    (told,) = served.heard()
    assert (told["method"], told["params"]["requestId"]) == ("notifications/cancelled", uid)
    # It may still run, and then it is answered late.
    assert served.connection.given_up.askers(trio.current_time()) == [caller]
    served.says(id=uid, result={})
    assert served.connection.given_up.askers(trio.current_time()) == []


async def test_while_its_client_is_asked_a_call_is_not_silent_but_not_endless(nursery: trio.Nursery) -> None:
    served, caller = Served(call=10, call_max=100), Patient()
    await served.begin(nursery)
    served.call(caller)
    served.asks()
    await trio.sleep(95)
    (asked,) = caller.before
    assert (caller.ended, asked.is_open) == ([], True)
    await trio.sleep(10)
    assert "timeouts.callMax" in str(caller.ended[0])
    assert [each.is_open for each in caller.before] == [False]
    assert [message.get("method") or message["id"] for message in served.heard()] == [
        "notifications/cancelled",
        "q",
    ]
