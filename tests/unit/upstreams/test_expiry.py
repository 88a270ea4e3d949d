"""Calls that take too long: silent, slow, or in line; a wait for a client is no silence."""

import attrs
import pytest
import trio

from daemon.errors import UpstreamTimeout
from daemon.wire.requests import PeerRequest
from tests.fakes_upstream import tool_call
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


async def test_from_the_clients_answer_on_the_server_has_its_time_again(nursery: trio.Nursery) -> None:
    served, caller = Served(call=10), Patient()
    await served.begin(nursery)
    served.call(caller)
    served.asks()
    await trio.sleep(50)
    caller.before[0].answer(b"{}")
    await trio.sleep(8)
    assert not caller.ended
    await trio.sleep(4)
    assert "timeouts.call" in str(caller.ended[0])


async def test_a_call_that_only_waits_in_line_is_refused(nursery: trio.Nursery) -> None:
    served = Served(queue=5)
    served.admission._apart.begin()
    await served.begin(nursery)
    anna, ben = Caller(), Caller()
    served.call(anna)
    served.admission.admit(tool_call("t"), ben)
    await trio.sleep(7)
    assert "timeouts.queue" in str(ben.ended[0])
    assert not anna.ended


async def test_who_is_given_up_learns_that_pings_have_no_answer_either(nursery: trio.Nursery) -> None:
    served, caller = Served(call=10), Caller()
    served.problem = "answers no pings (3 so far), and was last heard 11 s ago"
    await served.begin(nursery)
    served.call(caller)
    await trio.sleep(12)
    assert f"(timeouts.call); it {served.problem}; it was told to cancel" in str(caller.ended[0])
