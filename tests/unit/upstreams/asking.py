"""Thirty clients and scripted servers that ask them things, in random order: who is asked, and what is left.

Everything between the clients' links and the servers' links is the daemon's own; a link holds what was said
until the play lets it arrive, so cancellations, answers and questions cross each other in all ways.

The truth is in the messages: a call carries a word that only its client knows, what a server asks for a call
carries the call's word, and so does the client's answer.
"""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from itertools import count
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
import trio
import trio.testing

from daemon.actors.session import Session
from daemon.errors import ConnectionLost, RunError
from daemon.protocol import LIST_ROOTS
from daemon.safety.redact import Redactor
from daemon.upstreams.call_admission import Admission, Apart
from daemon.upstreams.events import ServerEvents
from daemon.upstreams.handshake import keep_expiring
from daemon.upstreams.transports.server_connection import RawConnection
from daemon.upstreams.upstream_access import UpstreamAccess
from tests.fakes_upstream import Stage
from tests.unit.config.reading import config_of
from tests.unit.upstreams.listing_server import unread
from tests.waiting import background

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from daemon.causes import Reason
    from daemon.config.config_model import Server
    from daemon.wire.envelope import Buffer
    from daemon.wire.outbox import Receiver

Json = dict[str, Any]
encode, decode = msgspec.json.encode, msgspec.json.Decoder(dict[str, Any]).decode

CLIENTS = 30
GUESSED = ("stdio", "unix", "sse", "websocket")
"""Servers whose transport does not say which call a request belongs to: to the daemon they are all alike."""
CARRIED = ("http", "http2")
"""Servers whose requests come in the answer to a call."""
LINGERS = 55.0
"""Seconds for which a server may go on after a call was given up: less than `timeouts.call`, which is 60."""
MOST_WAITING = 3
"""Questions on account of one call that wait at a time."""
METHODS = ("elicitation/create", "sampling/createMessage", LIST_ROOTS)


class Wire:
    """A `wire.outbox.Link` whose other end is the play; what is said arrives when it lets it."""

    def __init__(self) -> None:
        self.queued = 0
        self.turns = 0
        self.is_held = False
        self.to_peer: deque[bytes] = deque()
        self.to_daemon: deque[tuple[bytes, int | None]] = deque()
        self.carrying: int | None = None
        self._ended = trio.Event()
        self._receiver: Receiver | None = None

    def send(self, frame: Iterable[Buffer], request_id: bytes | None = None, *, ends: bool = False) -> None:
        del request_id, ends
        self.to_peer.append(b"".join(map(bytes, frame)))

    def waiting(self, request_id: bytes | None = None, /) -> float:
        del request_id
        return 0.0

    def flush(self) -> None: ...

    def resume(self) -> None: ...

    async def run(self, receiver: Receiver) -> None:
        self._receiver = receiver
        await self._ended.wait()
        raise ConnectionLost("it has hung up")

    def say(self, message: Json, carrying: int | None = None) -> None:
        """The peer says something, which has not arrived yet."""
        self.to_daemon.append((encode({"jsonrpc": "2.0", **message}), carrying))

    def arrive(self) -> None:
        """The next thing that the peer has said arrives."""
        assert self._receiver is not None
        line, self.carrying = self.to_daemon.popleft()
        self.turns += 1
        self._receiver.on_lines([line])

    def hang_up(self) -> None:
        self.to_daemon.clear()
        self._ended.set()


class Connection(RawConnection):
    """A connection that knows what a message came with, if its peer says so."""

    @property
    def carrying(self) -> int | None:
        assert isinstance(self.link, Wire)
        return self.link.carrying


class Life:
    """As much of a lifecycle as the end of a connection needs."""

    incarnation = 1

    def ending(self, reason: Reason) -> None: ...


@attrs.define(eq=False)
class Work:
    """A call at a server."""

    word: str
    given_up: float | None = None
    waits: int = 0
    """How many questions on its account have no answer."""


@attrs.define(eq=False)
class Asked:
    """What a server has asked."""

    work: Work
    cancelled: bool = False
    answered: bool = False


class ScriptedPeer(UpstreamAccess):
    """A server, and the daemon's access to it."""

    def __init__(self, play: Play, server: Server) -> None:
        super().__init__(
            server,
            unread(server),
            subscribers=play.stage.context.subscribers,
            outbox=play.stage.outbox,
            wall=time.time,
            start_limit=lambda: 1.0,
        )
        self.events = ServerEvents(self, Redactor(()))
        self.play = play
        self.carries = server.name in CARRIED
        self.wire = Wire()
        self.work: dict[int, Work] = {}
        self.asked: dict[str, Asked] = {}
        self.lifecycle: Any = Life()
        self._over = trio.CancelScope()

    async def serve(self) -> None:
        """One connection."""
        self.wire, self.work, self.asked = Wire(), {}, {}
        connection: Any = Connection(self.wire, outbox=self.play.stage.outbox, events=self.events)
        connection.given_up.seconds = self.play.remembered
        self.admission = Admission(self.name, connection, self.server.limits, apart=self.apart)
        with trio.CancelScope() as self._over:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(keep_expiring, self.admission, self.server.timeouts, self.wire.flush)
                try:
                    await connection.run()
                except RunError:
                    nursery.cancel_scope.cancel()

    def take(self, frame: bytes) -> None:
        """Something from the daemon arrives."""
        message = decode(frame)
        match message.get("method"):
            case "tools/call":
                self.work[message["id"]] = Work(message["params"]["arguments"]["word"])
            case "notifications/cancelled":
                if (work := self.work.get(message["params"]["requestId"])) is not None:
                    work.given_up = self.play.now()
            case None:
                self._take_answer(message)

    def _take_answer(self, message: Json) -> None:
        asked, count = self.asked[message["id"]], self.play.count
        assert not asked.answered, "answered twice"
        asked.answered = True
        asked.work.waits -= not asked.cancelled
        if "result" in message:
            if message["result"].get("action") != "decline":
                assert message["result"]["word"] == asked.work.word, "somebody else's answer"
                count["answered"] += 1
        else:
            count["uncertain"] += "calls of several clients" in message["error"]["message"]

    def act(self, rng: random.Random) -> None:
        """Do something with one of the calls: ask, answer it, or take a question back."""
        for uid in [u for u, w in self.work.items() if self._is_over(w)]:
            del self.work[uid]
        if not self.work:
            return
        uid = rng.choice(list(self.work))
        work, what = self.work[uid], rng.random()
        if work.given_up is not None:
            # Most stop soon, with an answer or without; some go on as if nothing had happened.
            if what < 0.5:
                self.ask(rng, uid, work)
            elif what < 0.6:
                self._answer(uid)
        elif work.waits < MOST_WAITING and what < 0.8:
            self.ask(rng, uid, work)
        elif not work.waits or what > 0.98:
            self._answer(uid)
        elif what > 0.95:
            self._take_back(rng)

    def ask(self, rng: random.Random, uid: int, work: Work) -> None:
        """Ask something on account of a call."""
        ask_id = f"{self.name}-{next(self.play.ids)}"
        self.asked[ask_id] = Asked(work)
        self.play.asks += 1
        work.waits += 1
        params: Json = {"word": work.word}
        if rng.random() < 0.2:
            params["_meta"] = {"progressToken": ask_id}
        self.wire.say(
            {"id": ask_id, "method": rng.choice(METHODS), "params": params}, uid if self.carries else None
        )

    def _take_back(self, rng: random.Random) -> None:
        ask_id = rng.choice(list(self.asked)[-20:])
        if not self.asked[ask_id].answered and not self.asked[ask_id].cancelled:
            self.asked[ask_id].cancelled = True
            self.asked[ask_id].work.waits -= 1
            self.wire.say({"method": "notifications/cancelled", "params": {"requestId": ask_id}})

    def _answer(self, uid: int) -> None:
        word = self.work.pop(uid).word
        self.wire.say({"id": uid, "result": {"content": [], "word": word}})

    def finish(self) -> None:
        for uid in list(self.work):
            self._answer(uid)

    def _is_over(self, work: Work) -> bool:
        return work.given_up is not None and self.play.now() - work.given_up > LINGERS


class Person:
    """A client that calls, answers, gives up and hangs up."""

    def __init__(self, play: Play, number: int, *, can: tuple[str, ...]) -> None:
        self.play = play
        self.number = number
        self.can = can
        self.wire = Wire()
        self.words: set[str] = set()
        self.calls: dict[int, str] = {}
        self.before: dict[int, tuple[str, str]] = {}
        """What it was asked and has not answered: its method and word, by the id."""
        self.session = Session(self.wire, number, play.stage.context)
        self._last = 0

    def greet(self) -> None:
        declared = {"protocolVersion": "2025-11-25", "capabilities": {name: {} for name in self.can}}
        self._last = 1
        self.wire.say({"id": 1, "method": "initialize", "params": declared})
        self.wire.say({"method": "notifications/initialized"})

    def take(self, frame: bytes) -> None:
        """Something from the daemon arrives."""
        message = decode(frame)
        method = message.get("method")
        if method in METHODS:
            self._take_question(message)
        elif method == "notifications/cancelled":
            # One that it has answered in the meantime.
            self.before.pop(message["params"]["requestId"], None)
        elif method is None and message["id"] in self.calls:
            word = self.calls.pop(message["id"])
            if "word" in message.get("result", {}):
                assert message["result"]["word"] == word, "the result of somebody else's call"

    def _take_question(self, message: Json) -> None:
        word, method = message["params"]["word"], message["method"]
        if word not in self.words:
            self.play.wrong.append(f"{method} for {word} came to client {self.number}")
        assert method.partition("/")[0] in self.can, f"{method} is not what client {self.number} has declared"
        assert message["id"] not in self.before
        self.before[message["id"]] = method, word
        self.play.count["delivered"] += 1

    def act(self, rng: random.Random) -> None:
        """Call, answer or give up."""
        what = rng.random()
        if self.before and what < 0.7:
            self.answer(rng, rng.choice(list(self.before)))
        elif what < 0.99 and len(self.calls) < 4:
            self.call(rng)
        elif self.calls and what > 0.996:
            request_id = rng.choice(list(self.calls))
            del self.calls[request_id]
            self.wire.say({"method": "notifications/cancelled", "params": {"requestId": request_id}})

    def call(self, rng: random.Random) -> None:
        self._last += 1
        word = f"word-{self.number}-{self._last}"
        self.words.add(word)
        self.calls[self._last] = word
        tool = f"work-{rng.choice(list(self.play.servers))}"
        params = {"name": tool, "arguments": {"word": word}}
        self.wire.say({"id": self._last, "method": "tools/call", "params": params})

    def answer(self, rng: random.Random, uid: int) -> None:
        """Answer what a server has asked, rightly or not."""
        _, word = self.before.pop(uid)
        what = rng.random()
        if what < 0.03:
            self.wire.say({"id": uid, "result": "yes"})
        elif what < 0.06:
            self.wire.say({"id": uid, "result": {"word": word}, "error": {"code": 1, "message": "no"}})
        elif what < 0.10:
            self.wire.say({"id": uid, "error": {"code": -1, "message": "no"}})
        else:
            if what < 0.2:
                self.wire.say(
                    {"method": "notifications/progress", "params": {"progressToken": uid, "progress": 1}}
                )
            for _ in range(2 if what > 0.95 else 1):
                self.wire.say({"id": uid, "result": {"action": "accept", "word": word}})

    def finish(self, rng: random.Random) -> None:
        for uid in list(self.before):
            self.answer(rng, uid)


class Play:
    """All of it."""

    def __init__(self, seed: int, clock: trio.testing.MockClock, remembered: float) -> None:
        self.rng = random.Random(seed)
        self.remembered = remembered
        self.clock = clock
        self.ids = count(1)
        self.asks = 0
        self.count: Counter[str] = Counter()
        self.wrong: list[str] = []
        names = (*GUESSED, *CARRIED)
        limits = {"inFlight": 8, "queue": 64}
        self.stage = Stage(
            config_of(
                {
                    "mcpServers": {name: {"command": "unused", "limits": limits} for name in names},
                    "profiles": {"default": {"surface": "full"}},
                }
            ),
            listed=False,
        )
        self.servers: dict[str, ScriptedPeer] = {}
        self.people: dict[int, Person] = {}
        self._numbers = count(1)
        self._sides: tuple[list[Person], list[ScriptedPeer]] = [], []
        self._nursery: trio.Nursery

    def now(self) -> float:
        return self.clock.current_time()

    async def run(self, asks: int) -> None:
        """Play until servers have asked so often; then everybody finishes what is open, and goes."""
        async with background() as self._nursery:
            for server in self.stage.config.mcp_servers.values():
                self.stage.lists(server.name, f"work-{server.name}")
                self.servers[server.name] = peer = ScriptedPeer(self, server)
                self.stage.upstreams[server.name] = peer  # type: ignore[assignment]
                self._nursery.start_soon(peer.serve)
            for _ in range(CLIENTS):
                self.come()
            await trio.testing.wait_all_tasks_blocked()
            for person in self.people.values():
                person.greet()
            while self.asks < asks:
                self._sides = [*self.people.values()], [*self.servers.values()]
                for _ in range(200):
                    self.step()
                await self.disturb()
            self.finish()
            await self.look()

    def come(self) -> Person:
        """A new client; some cannot be asked everything."""
        number = next(self._numbers)
        can = ("elicitation", "sampling", "roots")
        person = Person(self, number, can=can[: 1 + number % 3] if number % 5 == 0 else can)
        self.people[number] = person
        self._nursery.start_soon(person.session.run)
        return person

    def step(self) -> None:
        """Let one thing happen."""
        rng = self.rng
        sides: Sequence[ScriptedPeer | Person] = self._sides[rng.random() < 0.4]
        peer, what = sides[int(rng.random() * len(sides))], rng.random()
        if what < 0.5 and peer.wire.to_daemon:
            peer.wire.arrive()
        elif peer.wire.to_peer:
            peer.take(peer.wire.to_peer.popleft())
        else:
            peer.act(rng)

    async def disturb(self) -> None:
        """Let time pass, and now and then a client or a server go."""
        self.clock.jump(self.rng.random() * 3)
        what = self.rng.random()
        if what < 0.05:
            person = self.people.pop(self.rng.choice(list(self.people)))
            person.wire.hang_up()
            newcomer = self.come()
            await trio.testing.wait_all_tasks_blocked()
            newcomer.greet()
        elif what < 0.07:
            peer = self.rng.choice(list(self.servers.values()))
            peer.wire.hang_up()
            await trio.testing.wait_all_tasks_blocked()
            assert not peer.in_flight
            if self.rng.random() < 0.5:
                # As after a changed configuration: all clients at once again.
                peer.apart = Apart(peer.name)
            self._nursery.start_soon(peer.serve)
        await trio.testing.wait_all_tasks_blocked()

    def finish(self) -> None:
        """Let everybody say and hear the rest."""
        peers: list[ScriptedPeer | Person] = [*self.servers.values(), *self.people.values()]
        while True:
            for server in self.servers.values():
                server.finish()
            for person in self.people.values():
                person.finish(self.rng)
            if not any(peer.wire.to_daemon or peer.wire.to_peer for peer in peers):
                break
            for peer in peers:
                while peer.wire.to_daemon:
                    peer.wire.arrive()
                while peer.wire.to_peer:
                    peer.take(peer.wire.to_peer.popleft())

    async def look(self) -> None:
        """Nothing is left open anywhere."""
        await trio.testing.wait_all_tasks_blocked()
        for server in self.servers.values():
            left = [asked for asked in server.asked.values() if not asked.answered and not asked.cancelled]
            assert not left, f"{server.name} waits for {len(left)} answers"
            assert not server.in_flight
            assert server.admission is not None
            assert not [request for request in server.admission.asked if request.is_open]
        for person in self.people.values():
            assert not person.before
            assert not person.calls, f"client {person.number} waits for {person.calls}"
            assert not person.session._connection.calls.server_requests._open


def play(asks: int, seed: int = 1, remembered: float = 60.0) -> Play:
    """Play until servers have asked so often; the daemon remembers for so long which calls were given up."""
    clock = trio.testing.MockClock()
    found: list[Play] = []

    async def main() -> None:
        found.append(Play(seed, clock, remembered))
        await found[0].run(asks)

    trio.run(main, clock=clock)
    return found[0]
