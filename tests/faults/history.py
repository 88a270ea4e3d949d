"""What happened in a case, and whether it was right.

Whoever takes part notes events: clients what they ask and are answered, servers what reaches them, the case
what the daemon shows of itself. Nothing is judged while it happens; `violations` reads the whole history for
the invariants of the reliability plan (I1 to I7) and two of its promises (R20, R22):

I1  each request of a client gets exactly one answer
I2  a server has at most one connection and one process tree
I3  neighbours of the one that fails notice nothing
I4  afterwards nothing is left: children, descriptors, tasks
I5  no secret in any output
I6  an epoch never falls
I7  what cannot be called is listed as such with a reason, and nothing else is
R20 an answer is the answer to its own question
R22 no call reaches a server twice
"""

from collections import Counter
from collections.abc import Iterator

import attrs

DOWN = frozenset(
    {"queued", "starting", "backoff", "crashloop", "needs_auth", "failed", "stopping", "stopped", "disabled"}
)
"""States in which a server cannot be called."""

SERVING = frozenset({"ready", "degraded"})
"""States in which it can."""


@attrs.frozen(kw_only=True)
class Asked:
    """A request left a client."""

    client: int
    """Which connection."""
    id: str
    """As JSON."""
    server: str = ""
    """Which server's tool it calls; empty if none's."""
    nonce: str = ""
    """What only this call carries, and its answer repeats; empty if nothing."""


@attrs.frozen(kw_only=True)
class Answered:
    """An answer reached a client."""

    client: int
    """Which connection."""
    id: str
    """As JSON."""
    code: str = ""
    """The error that it tells; empty for a result."""
    text: str = attrs.field(default="", repr=False)
    """All of it."""


@attrs.frozen(kw_only=True)
class Withdrawn:
    """A client has cancelled a request: it need not be answered any more."""

    client: int
    """Which connection."""
    id: str
    """As JSON."""


@attrs.frozen(kw_only=True)
class HungUp:
    """A client's connection has ended, whoever ended it."""

    client: int
    """Which connection."""


@attrs.frozen(kw_only=True)
class Born:
    """A child of a server has started."""

    server: str
    """Which server's."""
    pid: int
    """Its process."""
    others: tuple[int, ...] = ()
    """Earlier processes of this server that were still alive."""


@attrs.frozen(kw_only=True)
class Connections:
    """How many connections a server has at a moment when nothing moves."""

    server: str
    """Which server."""
    live: int
    """So many."""


@attrs.frozen(kw_only=True)
class Took:
    """A call has reached a server."""

    server: str
    """Which server."""
    nonce: str
    """The call's."""


@attrs.frozen(kw_only=True)
class Seen:
    """How the daemon shows a server."""

    server: str
    """Which server."""
    state: str
    """Its state."""
    since: float = 0.0
    """Since when."""
    restarts: int = 0
    """How often it has been started again."""
    epoch: int = 0
    """The version of its tools."""
    pid: int | None = None
    """Its process."""
    reason: str = ""
    """Why it is as it is."""

    def is_like(self, other: "Seen") -> bool:
        """Whether nothing has happened between the two."""
        return (self.state, self.since, self.restarts) == (other.state, other.since, other.restarts)


@attrs.frozen(kw_only=True)
class Described:
    """How a model is shown a server."""

    server: str
    """Which server."""
    before: Seen
    """How it was shown to operators just before..."""
    after: Seen
    """... and just after."""
    epoch: int = 0
    """In `meta`."""
    tools: frozenset[str] = frozenset()
    """The tools that are described."""
    unavailable: frozenset[str] = frozenset()
    """`meta.unavailableTools`."""
    entry: tuple[str, str] | None = None
    """State and reason in `meta.unavailableServers`; None if it is not there."""


@attrs.frozen(kw_only=True)
class Said:
    """Something was put out: a log, a status, an answer of the daemon's own."""

    where: str
    """Which output."""
    text: str = attrs.field(repr=False)
    """What."""


@attrs.frozen(kw_only=True)
class Left:
    """What there was of something before a case, and afterwards."""

    what: str
    """Children, descriptors, tasks."""
    before: object
    """At first."""
    after: object
    """In the end."""


Event = Asked | Answered | Withdrawn | HungUp | Born | Connections | Took | Seen | Described | Said | Left


@attrs.define(eq=False)
class History:
    """The events of one case."""

    neighbours: frozenset[str] = frozenset()
    """Servers that nothing is done to."""
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)
    """What must not be put out."""
    events: list[Event] = attrs.field(factory=list)
    """In the order in which they were noted."""

    def note(self, event: Event) -> None:
        """One more."""
        self.events.append(event)

    def violations(self) -> list[str]:
        """Everything that was not right, each beginning with the invariant's name."""
        checks = (
            *(self._answers(), self._copies(), self._neighbours(), self._remains(), self._secrets()),
            *(self._epochs(), self._shown(), self._mixed_up(), self._repeated()),
        )
        return [violation for check in checks for violation in check]

    def _answers(self) -> Iterator[str]:
        asked = Counter((e.client, e.id) for e in self.events if isinstance(e, Asked))
        answered = Counter((e.client, e.id) for e in self.events if isinstance(e, Answered))
        excused = {(e.client, e.id) for e in self.events if isinstance(e, Withdrawn)}
        gone = {e.client for e in self.events if isinstance(e, HungUp)}
        for key in asked | answered:
            owed, got = asked[key], answered[key]
            if got > owed or (got < owed and key not in excused and key[0] not in gone):
                yield f"I1: client {key[0]} asked {key[1]} {owed} times and was answered {got} times"

    def _copies(self) -> Iterator[str]:
        for event in self.events:
            if isinstance(event, Born) and event.others:
                yield f"I2: {event.server} was started as {event.pid} while {event.others} were alive"
            if isinstance(event, Connections) and event.live > 1:
                yield f"I2: {event.server} has {event.live} connections"

    def _neighbours(self) -> Iterator[str]:
        asked = {
            (e.client, e.id): e for e in self.events if isinstance(e, Asked) and e.server in self.neighbours
        }
        for event in self.events:
            if isinstance(event, Answered) and event.code and (event.client, event.id) in asked:
                server = asked[event.client, event.id].server
                yield f"I3: a call to {server} was answered with {event.code}: {event.text[:200]}"
        for server in self.neighbours:
            seen = [e for e in self.events if isinstance(e, Seen) and e.server == server]
            looks = {(e.state, e.pid, e.restarts) for e in seen}
            if len(looks) > 1 or any(state != "ready" for state, _pid, _restarts in looks):
                yield f"I3: {server} did not stay as it was: {sorted(map(str, looks))}"

    def _remains(self) -> Iterator[str]:
        for event in self.events:
            if isinstance(event, Left) and event.before != event.after:
                yield f"I4: {event.what}: {event.before} before, {event.after} afterwards"

    def _secrets(self) -> Iterator[str]:
        for where, text in self._outputs():
            for number, secret in enumerate(self.secrets):
                if secret in text:
                    at = text.index(secret)
                    around = text[max(0, at - 60) : at + 60].replace(secret, "*****")
                    yield f"I5: secret {number} stands in {where}: {around!r}"

    def _outputs(self) -> Iterator[tuple[str, str]]:
        for event in self.events:
            match event:
                case Said(where=where, text=text):
                    yield where, text
                case Answered(code=code, text=text) if code:
                    yield f"an answer with {code}", text
                case Seen(server=server, reason=reason):
                    yield f"the status of {server}", reason
                case Described(server=server, entry=(_, reason)):
                    yield f"the description of {server}", reason
                case _:
                    pass

    def _epochs(self) -> Iterator[str]:
        highest: dict[str, int] = {}
        for event in self.events:
            if not isinstance(event, Seen | Described):
                continue
            if event.epoch < highest.get(event.server, 0):
                yield f"I6: the epoch of {event.server} fell from {highest[event.server]} to {event.epoch}"
            highest[event.server] = max(event.epoch, highest.get(event.server, 0))

    def _shown(self) -> Iterator[str]:
        for event in self.events:
            # If its state changed meanwhile, either is right.
            if isinstance(event, Described) and event.before.is_like(event.after):
                yield from self._shown_wrongly(event)

    def _shown_wrongly(self, event: Described) -> Iterator[str]:
        state, name = event.before.state, event.server
        if state in DOWN:
            if event.entry is None:
                yield f"I7: {name} is {state} and not in unavailableServers"
            elif not event.entry[1] and state not in {"starting", "stopped", "stopping"}:
                yield f"I7: {name} is {state}, and unavailableServers gives no reason"
            elif event.entry[0] != state:
                yield f"I7: {name} is {state}, and unavailableServers calls it {event.entry[0]}"
            if missing := event.tools - event.unavailable:
                yield f"I7: {name} is {state} and its tools {sorted(missing)} are not in unavailableTools"
        elif state in SERVING and (event.entry is not None or event.tools & event.unavailable):
            listed = sorted(event.tools & event.unavailable)
            yield f"I7: {name} is {state}, and unavailable is said to be: {event.entry}, {listed}"

    def _mixed_up(self) -> Iterator[str]:
        nonces = {(e.client, e.id): e.nonce for e in self.events if isinstance(e, Asked) and e.nonce}
        for event in self.events:
            if isinstance(event, Answered) and not event.code:
                nonce = nonces.get((event.client, event.id))
                if nonce is not None and nonce not in event.text:
                    yield f"R20: client {event.client} got another's answer to {event.id}: {event.text[:200]}"

    def _repeated(self) -> Iterator[str]:
        times = Counter((e.server, e.nonce) for e in self.events if isinstance(e, Took) and e.nonce)
        for (server, nonce), count in times.items():
            if count > 1:
                yield f"R22: call {nonce} reached {server} {count} times"
