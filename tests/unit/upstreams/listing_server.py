"""A server that only lists, and its lists as they are read, kept and told of."""

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import trio

from daemon.catalog.kinds import LISTS
from daemon.causes import Reason
from daemon.config.config_model import Server
from daemon.config.tuning import Timeouts
from daemon.facts import DefinitionsListed, Fact
from daemon.model import Era, Kind
from daemon.safety.redact import Redactor
from daemon.upstreams.handshake import Greeting
from daemon.upstreams.server_lists import Listing, ServerLists
from daemon.wire.envelope import RemoteError
from tests.unit.upstreams.transports.replies import TableConnection

GREETING = Greeting(era=Era.HANDSHAKE, version="2025-11-25", lists_tools=True, server_info="alpha 1")
UNKNOWN = RemoteError(-32601, "Method not found")


def unread(server: Server) -> ServerLists:
    """The lists of a server, which nobody reads."""

    async def settled() -> None: ...

    made = partial(Listing, server, tell=lambda _fact: None, wall=lambda: 0.0, redact=Redactor(()))
    return ServerLists(partial(made, settle=settled))


class ListingServer(TableConnection):
    """A connection to a server that only lists: what it lists, and when, is the test's."""

    def __init__(self) -> None:
        super().__init__()
        self.lists: dict[Kind, list[str] | Exception] = {
            Kind.TOOL: ["echo"],
            Kind.PROMPT: ["p"],
            Kind.RESOURCE: ["x:r"],
            Kind.TEMPLATE: ["x:{t}"],
            Kind.SKILL: ["skill://s/SKILL.md"],
        }
        self.members: dict[str, Any] = {}
        self.failure: Exception | None = None
        self.before_answer: Callable[[], None] = lambda: None
        self.held: dict[Kind, trio.Event] = {}
        self.listed: list[float] = []

    async def request(self, method: str, params: dict[str, object], *, timeout: float) -> bytes:  # noqa: ASYNC109
        self.said.append((method, params))
        self.listed.append(trio.current_time())
        (kind,) = (each for each, form in LISTS.items() if form.method == method)
        if kind in self.held:
            await self.held[kind].wait()
        names = self.failure or self.lists[kind]
        if isinstance(names, Exception):
            raise names
        self.before_answer()
        common = {"inputSchema": {"type": "object"}, "frontmatter": {"name": "s"}, "resources": "dynamic"}
        listed = [{"name": each, LISTS[kind].key: each, **common, **self.members} for each in names]
        return json.dumps({LISTS[kind].member: listed}).encode()

    def asked(self, kind: Kind) -> int:
        return sum(method == LISTS[kind].method for method, _ in self.said)


class Lists:
    """The lists of a server, and what they have told."""

    def __init__(
        self,
        greeting: Greeting = GREETING,
        secrets: Iterable[str] = ("s3cret",),
        doubtful: Iterable[str] = (),
        **timeouts: Any,
    ) -> None:
        self.facts: list[Fact] = []
        self.problems: list[Reason] = []
        self.connection = ListingServer()
        redact = Redactor(())
        redact.learn(secrets, doubtful)
        server = Server(name="alpha", command="x", timeouts=Timeouts(**timeouts))
        made = partial(Listing, server, tell=self.facts.append, wall=lambda: 42.0, redact=redact)
        self.lists = ServerLists(partial(made, settle=self._settle))
        self.tools = self.lists.tools
        self.unsettled = trio.Event()
        self.unsettled.set()
        self.lists.begin(self.connection, 3, greeting)

    async def _settle(self) -> None:
        await self.unsettled.wait()

    def lists_tools(self, *names: str) -> None:
        self.connection.lists[Kind.TOOL] = [*names]

    def told(self, kind: Kind = Kind.TOOL) -> list[DefinitionsListed]:
        return [each for each in self.facts if isinstance(each, DefinitionsListed) and each.kind is kind]

    def last(self, kind: Kind) -> tuple[list[str], str]:
        fact = self.told(kind)[-1]
        return [each.name for each in fact.definitions], fact.problem
