"""What a server says of its own accord: whom it reaches."""

from typing import Any

import pytest
from loguru import logger
from msgspec import Raw

from daemon.causes import Cause
from daemon.config.config_model import Server
from daemon.config.hosts import HostRefusal
from daemon.errors import ProtocolFault
from daemon.model import Kind
from daemon.safety.redact import Redactor
from daemon.sandbox.egress import SeenHost
from daemon.upstreams.call_admission import Admission
from daemon.upstreams.events import ServerEvents
from daemon.upstreams.upstream_access import UpstreamAccess
from daemon.wire.outbox import Outbox
from daemon.wire.requests import NO_CLIENT
from tests.fakes_upstream import tool_call
from tests.unit.clients.asking import question
from tests.unit.upstreams import test_admission
from tests.unit.upstreams.listing_server import unread
from tests.unit.upstreams.wishing import Wishing


class Life:
    """A lifecycle that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.incarnation = 1

    def ending(self, reason: Any) -> None:
        self.told.append(("ending", reason.cause))

    def degraded(self, reason: Any) -> None:
        self.told.append(("degraded", reason.cause))

    def runs_as(self, mark: int) -> None:
        self.told.append(("runs as", mark))


class Scene:
    """A server that is up, or down."""

    def __init__(self, *, up: bool = True) -> None:
        self.clients, self.life, self.connection = Wishing(), Life(), test_admission.Server()
        server = Server(name="s", command="x")
        self.server = UpstreamAccess(
            server,
            unread(server),
            subscribers=self.clients,
            outbox=Outbox(),
            wall=lambda: 0.0,
            start_limit=lambda: 1.0,
        )
        self.events = ServerEvents(self.server, Redactor(()))
        self.server.lifecycle = _as_any(self.life)
        if up:
            self.server.admission = Admission(
                "s", self.connection, server.limits, lambda: 0.0, self.server.apart
            )


def _as_any(value: object) -> Any:
    return value


async def test_a_request_goes_to_the_call_that_has_caused_it() -> None:
    scene, caller, asked = Scene(), test_admission.Caller(), question("roots/list", server="")
    scene.server.send(tool_call("t"), caller)
    scene.events.on_server_request(asked.request, None)
    assert asked.back.said == [("refused", -32600, NO_CLIENT, None)]
    assert asked.request.server == "s"
    assert not scene.clients.asked


async def test_a_request_that_no_user_is_to_see_is_refused_and_told_of() -> None:
    scene, caller = Scene(), test_admission.Caller()
    asked = question("elicitation/create", {"message": "log in", "url": "javascript:0"}, server="")
    scene.server.send(tool_call("t"), caller)
    scene.events.on_server_request(asked.request, None)
    assert (asked.answers, scene.clients.heard) == ([("refused", -32602)], [("s", "url")])
    assert not scene.clients.asked


@pytest.mark.parametrize("up", [True, False])
async def test_a_request_without_a_call_is_the_clients_matter(up: bool) -> None:
    scene, asked = Scene(up=up), question("elicitation/create", {"message": "m"}, server="")
    scene.server.name = "s#12"
    scene.events.on_server_request(asked.request, None)
    assert (scene.clients.asked, asked.request.server) == ([asked.request], "s#12")
    assert bytes(asked.request.params or b"") == b'{"message":"Server s asks: m"}'


async def test_notifications_reach_the_clients_and_the_log() -> None:
    scene = Scene()
    scene.events.on_message("notifications/resources/updated", Raw(b'{"uri":"a"}'), None)
    scene.events.on_message("notifications/message", Raw(b'{"data":"it works"}'), None)
    assert [method for _, method in scene.clients.heard] == [
        "notifications/resources/updated",
        "notifications/message",
    ]
    assert scene.server.stderr.last(5) == ['{"data":"it works"}']


async def test_an_unknown_notification_belongs_to_the_call_that_it_came_with_or_to_clients() -> None:
    scene, caller = Scene(), Named()
    scene.server.send(tool_call("t"), caller)
    scene.events.on_message("notifications/com.example/x", Raw(b"{}"), None)
    assert (scene.clients.heard, caller.told) == ([("s", "notifications/com.example/x")], [])
    scene.events.on_message("notifications/com.example/y", Raw(b"{}"), caller)
    assert (len(scene.clients.heard), caller.told) == (1, ["notifications/com.example/y"])
    for own in ("mcpd/unsent", "notifications/tasks"):
        scene.events.on_message(own, Raw(b"{}"), None)
    assert caller.told == ["notifications/com.example/y"]


class Named(test_admission.Caller):
    """A caller that keeps the notifications that came with its call."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def notified(self, method: str, params: Raw) -> None:
        self.told.append(method)


async def test_a_server_is_told_something_while_it_is_up_and_takes_no_calls_afterwards() -> None:
    scene = Scene()
    scene.events.on_child(42, 7)
    scene.events.on_list_changed((Kind.TOOL,))
    assert (scene.server.children, scene.server.is_stale) == ({42: 7}, True)
    scene.server.notify("notifications/roots/list_changed")
    assert scene.connection.said == [("notifications/roots/list_changed", {})]
    Scene(up=False).server.notify("notifications/roots/list_changed")
    for _ in range(2):
        scene.events.on_lost("it broke")
    assert scene.life.told == [("runs as", 7), ("ending", Cause.CONNECTION_LOST)]
    assert scene.server.in_flight == 0


async def test_noise_is_counted_and_a_flood_of_it_ends_the_connection() -> None:
    scene = Scene()
    scene.events.on_noise(b"hello", "no JSON")
    assert scene.server.noise.count == 1

    def flood() -> None:
        for _ in range(100_000):
            scene.events.on_noise(b"x" * 1000, "no JSON")

    with pytest.raises(ProtocolFault):
        flood()
    assert ("degraded", Cause.NOISE) in scene.life.told


def test_a_refused_host_is_noted_each_time_and_logged_once() -> None:
    scene, lines = Scene(), list[str]()
    sink = logger.add(lambda message: lines.append(message.record["message"]), level="INFO")
    for count in (1, 2, 3):
        scene.events.on_refused_host(SeenHost("api.x", 443, HostRefusal.NOT_ALLOWED, "api.x", count))
    logger.remove(sink)
    assert [str(each.kind) for each in scene.clients.refusals] == ["host-refused"] * 3
    allow = "mcpd allow-host s api.x"
    details = {"host": "api.x", "port": 443, "reason": "not-allowed", "allow": allow}
    assert scene.clients.refusals[0].details == details
    assert lines == [f"its sandbox refused api.x:443 (`{allow}` allows it)"]
