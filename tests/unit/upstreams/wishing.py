"""A server that is asked for what clients want beside answers, and the clients: both do what the test says."""

import json
import math
from collections.abc import Callable
from typing import Any

import attrs
import trio
import trio.testing
from msgspec import Raw

from daemon.catalog.authorship import UnsafeQuestion
from daemon.errors import UpstreamTimeout
from daemon.history.event import Event
from daemon.kit.waiting import Watch
from daemon.model import StandingWishes
from daemon.ports import TaskOwner
from daemon.protocol import RESOURCE_UPDATED
from daemon.wire.envelope import RemoteError
from daemon.wire.requests import Exchange, GivenUp, PeerRequest


@attrs.define(eq=False)
class Wishing:
    """The clients, as servers' messages reach them, and what they wish: a `ports.Subscribers`."""

    watch: Watch[StandingWishes] = attrs.field(factory=lambda: Watch(StandingWishes()))
    outcomes: dict[str, RemoteError | None] = attrs.field(factory=dict)
    heard: list[tuple[str, str]] = attrs.field(factory=list)
    updated: list[str] = attrs.field(factory=list)
    asked: list[PeerRequest] = attrs.field(factory=list)
    refusals: list[Event] = attrs.field(factory=list)

    async def wish(self, *uris: str, level: str | None = None) -> None:
        """Wish for these, and wait for all that comes of it."""
        self.watch.set(StandingWishes(level=level, uris=frozenset(uris)))
        await trio.testing.wait_all_tasks_blocked()

    def hear(self, server: str, method: str, params: Raw, cause: Exchange | None) -> None:
        self.heard.append((server, method))
        if method == RESOURCE_UPDATED:
            self.updated.append(json.loads(bytes(params))["uri"])

    def wishes(self, server: str) -> Watch[StandingWishes]:
        return self.watch

    def settled(self, server: str, uri: str, refusal: RemoteError | None) -> None:
        self.outcomes[uri] = refusal

    def owner_of(self, request: PeerRequest) -> TaskOwner | None:
        return None

    def ask(self, request: PeerRequest) -> None:
        self.asked.append(request)

    def unsafe(self, server: str, why: UnsafeQuestion) -> None:
        self.heard.append((server, why.reason))

    def refused_host(self, refusal: Event) -> None:
        self.refusals.append(refusal)

    def uses(self, server: str) -> bool:
        raise AssertionError(server)

    def lost(self, server: str, *, wholly: bool = False) -> None:
        self.heard.append((server, "lost"))

    def gone(self, server: str) -> None:
        self.heard.append((server, "gone"))


class AskedServer:
    """A connection to a server that remembers what it was asked."""

    last_heard = 0.0
    in_flight = 0

    def __init__(self) -> None:
        self.given_up = GivenUp()
        self.asked: list[tuple[str, Any]] = []
        self.open: list[Any] = []
        """The params of subscriptions that are held."""
        self.answer: Callable[[str, Any], Exception | None] = lambda _method, _params: None
        self.mute: set[str] = set()
        """Methods that it never answers."""
        self.end = trio.Event()
        """Set: the subscriptions that are held end."""

    async def request(self, method: str, params: dict[str, object], *, timeout: float) -> bytes:  # noqa: ASYNC109
        self.asked.append((method, params))
        if (error := self.answer(method, params)) is not None:
            raise error
        if method in self.mute:
            await trio.sleep(timeout)
            raise UpstreamTimeout(f"no answer to {method}")
        if timeout == math.inf:
            self.open.append(params)
            try:
                await self.end.wait()
            finally:
                self.open.remove(params)
        return b"{}"

    def of(self, method: str) -> list[Any]:
        """What it was asked with this method, and is not asked about again."""
        found = [params for asked, params in self.asked if asked == method]
        self.asked = [each for each in self.asked if each[0] != method]
        return found

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)
