"""A server that works for one client at a time: all have their turns, and the limits hold."""

import pytest

from daemon.config.tuning import ServerLimits
from daemon.errors import Overloaded
from daemon.upstreams.call_admission import Admission, Apart
from tests.unit.clients.asking import question
from tests.unit.upstreams.test_admission import Caller, Server, call

ANNA, BEN, CARL = "anna", "ben", "carl"


class Scene:
    """A server that works for one client at a time, from the beginning or from the first doubt."""

    def __init__(self, *, in_flight: int = 3, queue: int = 10, on: bool = True) -> None:
        self.server = Server()
        self.apart = Apart("s", lambda: self.server.now)
        self.limits = ServerLimits(in_flight=in_flight, queue=queue)
        if on:
            self.apart.begin()
        self.connect()

    def connect(self) -> None:
        self.admission = Admission("s", self.server, self.limits, lambda: self.server.now, self.apart)

    def call(self, who: str, name: str) -> Caller:
        caller = Caller(who=who)
        self.admission.admit(call(f"{who}-{name}"), caller, hash(who))
        return caller

    @property
    def sent(self) -> list[str]:
        return self.server.sent


def test_it_outlives_the_connection() -> None:
    scene = Scene(on=False)
    scene.call(ANNA, "1")
    scene.call(BEN, "1")
    scene.admission.attribution.take(question("sampling/createMessage").request, None)
    scene.admission.close()
    scene.server = Server()
    scene.connect()
    scene.call(ANNA, "2")
    scene.call(BEN, "2")
    assert scene.sent == ["anna-2"]


def test_clients_that_share_a_connection_are_told_apart_and_a_call_given_up_frees_the_server() -> None:
    scene = Scene()
    first, *_ = (scene.admission.admit(call(who), Caller(who=who), 1) for who in (ANNA, BEN, BEN, CARL))
    assert scene.sent == ["anna"]
    scene.admission.cancel(first, "not wanted")
    assert scene.sent == ["anna", "ben", "ben"]
    for _ in range(2):
        scene.server.answer("ben")
    assert scene.sent[3:] == ["carl"]


@pytest.mark.parametrize("ends", [True, False], ids=["a call ends", "another comes"])
def test_after_a_minute_without_a_request_all_clients_are_served_at_once_again(*, ends: bool) -> None:
    scene = Scene()
    for who in (ANNA, BEN, CARL)[: 2 + ends]:
        scene.call(who, "1")
    assert scene.sent == ["anna-1"]
    scene.server.now = 60.0
    if ends:
        scene.server.answer("anna-1")
    else:
        scene.call(CARL, "1")
    assert scene.sent == ["anna-1", "ben-1", "carl-1"]


def test_the_limits_of_the_line_hold_and_the_refusal_says_why() -> None:
    scene = Scene(queue=1)
    scene.call(ANNA, "1")
    scene.call(BEN, "1")
    with pytest.raises(Overloaded, match="one client at a time"):
        scene.call(CARL, "1")
    scene.server.now = 60.0
    scene.admission.expire(60.0)
    assert scene.admission.queued == 0


def test_what_a_call_was_asked_for_ends_before_its_answer_is_passed_on() -> None:
    scene, order = Scene(on=False), list[str]()

    class Asked(Caller):
        def asked(self, question: object) -> None: ...

        def answered(self, result: object) -> None:
            order.append("answered")

    scene.admission.admit(call("a"), Asked(who=ANNA), 1)
    asked = question("roots/list")
    asked.request.on_withdrawn = order.append
    scene.admission.attribution.take(asked.request, None)
    assert scene.admission.asked
    scene.server.answer("a")
    assert order == ["the call that it belongs to has ended", "answered"]
    assert asked.answers == [("refused", -32600)]
