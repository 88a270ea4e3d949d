"""The state of one client's conversation with one daemon after another; no descriptors, no monotonic clock.

While a daemon is there (`through`), lines pass unchanged in both directions; only their ids are looked at. When
it goes, every open request is settled. One that may have run is answered with `UpstreamLost`, because running
it twice could do damage. One that has no effect, or was not sent completely, waits for the next daemon. That
daemon is sent the `Script` first: what the previous one knew of this client. `sides` moves lines in and out.
"""

from __future__ import annotations

from math import inf
from time import CLOCK_BOOTTIME, clock_gettime, time

from daemon.bridge import peek, stand_in
from daemon.bridge.lines import Outgoing
from daemon.bridge.requests import (
    INITIALIZE,
    LISTEN,
    SET_LEVEL,
    SUBSCRIBE,
    TOOLS_LIST,
    UNSUBSCRIBE,
    WAIT_SECONDS,
    Item,
    OpenRequests,
    Waiting,
)
from daemon.bridge.stand_in import FULL, absent, refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.bridge.stand_in import Refusal


INITIALIZED_LINE = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
PING_ID = b'"mcpd-connect"'
PING = b'{"jsonrpc":"2.0","id":%b,"method":"ping"}\n' % PING_ID
CHOOSING = b'"servers":'
"""In a hello that names servers. The handshake may wait for these, so that a daemon says at once, to a ping of
ours, that it is there."""
LIST_CHANGED = b'{"jsonrpc":"2.0","method":"notifications/%b/list_changed"}\n'
UPDATED = b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":%b}}\n'
LISTS = (b"tools", b"prompts", b"resources")
"""What a daemon offers, as the notifications that it has changed name it."""
GONE = (
    b'{"jsonrpc":"2.0","method":"notifications/cancelled",'
    b'"params":{"requestId":%b,"reason":"the daemon that asked is gone"}}\n'
)

_END = b"}}\n"

MAX_SUBSCRIPTIONS = 16
"""As many as the daemon allows to be open (`clients.list_changes.MAX_SUBSCRIPTIONS`)."""

MAX_WATCHED = 1000
"""Resources whose subscriptions are made again with the next daemon, as many as one client may have."""

MAX_ASKED = 64
"""Requests of a daemon without an answer that are cancelled when it goes: more than it makes of one client."""

HELLO_LINE = b'{"jsonrpc":"2.0","method":"mcpd/hello","params":{%b}}\n'


class Beginning:
    """The time at which a conversation began, which setting the clock does not move to a later one."""

    __slots__ = ("_read", "_since_boot")

    def __init__(self) -> None:
        """Begin now."""
        self._read, self._since_boot = time(), clock_gettime(CLOCK_BOOTTIME)

    def earliest(self) -> float:
        """Seconds since the epoch: by the clock as it was then or as it is now, whichever is earlier."""
        return min(self._read, time() - (clock_gettime(CLOCK_BOOTTIME) - self._since_boot))


class Script:
    """The part of what a client said that outlives a daemon: its hello, handshake and subscriptions."""

    def __init__(self, hello: bytes) -> None:
        """Start with the bridge's own hello."""
        self.initialized = False
        """Whether the client has finished the handshake."""
        self.subscriptions: dict[bytes, bytes] = {}
        """Acknowledged, open subscriptions of the 2026-07-28 protocol: id to request line."""
        self.settings: dict[bytes, tuple[bytes, bytes]] = {}
        """What the client has set, and every daemon must know: id and line of the request, by what it sets (the
        log's level, or a resource that it watches)."""
        self.began: Beginning | None = None
        """When a daemon first said something, and so may have shown tools; None if none ever did."""
        self._hello = hello
        self._handshake: tuple[bytes, bytes] | None = None
        self._said: tuple[bytes, bytes] | None = None
        """The handshake that the present daemon was sent."""
        self._reopened: set[bytes] = set()

    @property
    def handshaken(self) -> bool:
        """Whether the client's `initialize` was answered: the client is of the handshake era then."""
        return self._handshake is not None

    def shook_hands(self, request_id: bytes, line: bytes) -> None:
        """Record an `initialize` that was accepted."""
        self._handshake = request_id, line

    def subscribed(self, request_id: bytes, line: bytes) -> None:
        """Record a `subscriptions/listen` that was acknowledged."""
        if len(self.subscriptions) < MAX_SUBSCRIPTIONS:
            self.subscriptions[request_id] = line

    def unsubscribed(self, request_id: bytes) -> None:
        """Forget a subscription, if the id is one's."""
        self.subscriptions.pop(request_id, None)
        self._reopened.discard(request_id)

    def was_set(self, request_id: bytes, method: bytes | None, line: bytes) -> None:
        """Record a request that was granted if it sets something, or forget what it takes back."""
        if method == SET_LEVEL:
            self.settings[SET_LEVEL] = request_id, line
        elif method in {SUBSCRIBE, UNSUBSCRIBE} and (resource := peek.uri(line)) is not None:
            self.settings.pop(resource, None)
            if method == SUBSCRIBE and len(self.settings) < MAX_WATCHED:
                self.settings[resource] = request_id, line

    def opening(self) -> tuple[bytes, bytes]:
        """What a new daemon is sent first, and the id of the one request in it.

        That request is the client's own handshake, or a ping. Nothing else is sent before it is answered: until
        then the connection may be waiting in the backlog of a daemon that is still starting, or never will.
        """
        self._reopened.clear()
        self._said = self._handshake
        request_id, line = self._handshake or (PING_ID, PING)
        return self._greeting() + line, request_id

    def overheard(self) -> None:
        """Note that the present daemon was sent the client's own `initialize`, which was answered here."""
        self._said = self._handshake

    def supplement(self) -> tuple[bytes, bytes] | None:
        """The handshake and its id, if it took place after `opening` and must be sent too; else None."""
        if self._said is self._handshake or self._handshake is None:
            return None
        self._said = self._handshake
        request_id, line = self._handshake
        return line, request_id

    def _greeting(self) -> bytes:
        """The hello; a later daemon is also told when the conversation with the first one began."""
        if self.began is None:
            return self._hello
        resumed = b'"resumed":%.6f' % self.began.earliest()
        return self._hello[: -len(_END)] + b"," + resumed + _END if self._hello else HELLO_LINE % resumed

    def sequel(self) -> bytes:
        """What a new daemon is sent after it has answered the opening request."""
        self._reopened = set(self.subscriptions)
        said = INITIALIZED_LINE if self.initialized else b""
        return said + b"".join([*self.subscriptions.values(), *(line for _id, line in self.settings.values())])

    def announcement(self) -> bytes:
        """What the client is told at that point: another daemon may offer something else.

        What it watches may have changed while no daemon was told of it.
        """
        watched = b"".join(UPDATED % resource for resource in self.settings if resource != SET_LEVEL)
        return b"".join(LIST_CHANGED % each for each in LISTS) + watched if self.initialized else b""

    def reopened(self, request_id: bytes, line: bytes | bytearray) -> bytes | None:
        """Take a new daemon's acknowledgement of a subscription.

        Args:
            request_id: of the subscription.
            line: the acknowledgement.

        Returns:
            For a subscription the client already has, what it is told instead of the acknowledgement: that the
            lists may have changed that it subscribed to. None if the subscription is new to the client.
        """
        if request_id not in self._reopened:
            return None
        self._reopened.discard(request_id)
        told = [LIST_CHANGED % each for each in LISTS if b'"%bListChanged":true' % each in line]
        meta = b'{"io.modelcontextprotocol/subscriptionId":%b}' % request_id
        return b"".join(b'%b,"params":{"_meta":%b}}\n' % (each[:-2], meta) for each in told)


HELLO = b'"mcpd/hello"'
INITIALIZED = b'"notifications/initialized"'
CANCELLED = b'"notifications/cancelled"'


class Conversation:
    """One client's requests, and the bytes for each side: `up` for the daemon, `down` for the client."""

    def __init__(
        self, hello: bytes, *, through: bool = True, starts: Callable[[], bool] = lambda: True
    ) -> None:
        """Start a conversation.

        Args:
            hello: sent to each daemon before anything else.
            through: whether a daemon is there.
            starts: whether this bridge may have a daemon started; asked only where none is there.
        """
        self.starts = starts
        self.up = Outgoing()
        self.down = bytearray()
        self.through = through
        """Whether a daemon takes what the client sends."""
        self.trouble = ""
        """Why no daemon is there, and what to do."""
        self.stands_in = False
        """Whether the client was answered here, because no daemon had."""
        self.own_tool = b""
        """The name of our own tool once the client has been given it: its model may call it at any later
        time."""
        self.script = Script(hello)
        self.requests = OpenRequests()
        self.waiting = Waiting()
        self.unheard = Waiting()
        """The client's first requests, sent to a daemon that has not said a word; they are in `requests`
        too."""
        self.awaited: bytes | None = None
        """The request whose answer shows that the daemon takes what the client sends."""
        self.refusal = ""
        """Why the present daemon does not serve this client, if it refused the opening request."""
        self.is_leaving = False
        """Whether the present daemon is stopping: it still answers, and is sent nothing more."""
        self.unsent: set[bytes] = set()
        """Ids of the open requests that this daemon has passed on to nobody: the next one is sent them."""
        self.asked: set[bytes] = set()
        """Ids of the daemon's requests that the client has not answered."""
        self.hidden: set[bytes] = set()
        """Ids whose answers are kept from the client: requests of our own, or ones that were answered here."""
        if through:
            self.up.put(hello)
        if through and CHOOSING in hello:
            self.hidden.add(PING_ID)
            self.up.put(PING)

    @property
    def heard(self) -> bool:
        """Whether any daemon has said anything."""
        return self.script.began is not None

    @property
    def is_settled(self) -> bool:
        """Whether a daemon takes what the client sends and has spoken: nothing is due at a time of its own."""
        return self.through and self.heard

    @property
    def deadline(self) -> float | None:
        """When `expire` has something to do (seconds, monotonic); None if nothing waits."""
        deadlines = [self.waiting.deadline(), self.unheard.deadline()]
        return min((each for each in deadlines if each is not None), default=None)

    def expire(self, now: float, *, hopeless: bool = False) -> None:
        """Answer the requests that have waited long enough; all that wait, if it is hopeless."""
        for item in self.waiting.expired(inf if hopeless else now):
            if item.id is not None and not self._stood_in(item.id, item):
                waited = WAIT_SECONDS if self.heard else stand_in.patience(item.method)
                waited -= max(0.0, item.until - now)
                self.refuse(item.id, item.method, absent(self.trouble, waited))
        for item in self.unheard.expired(now):
            if item.id is not None and self._stood_in(item.id, item):
                self._doubt(item.id)

    def refuse(self, request_id: bytes, method: bytes | None, refusal: Refusal) -> None:
        """Answer a request in the daemon's place."""
        self.down += refuse(request_id, method, refusal, modern=not self.script.handshaken)

    def hold(self, request_id: bytes | None, method: bytes | None, line: bytes, until: float) -> None:
        """Keep a line for the next daemon, unless it means nothing to that one.

        The script repeats the hello, the end of the handshake and the subscriptions anyway; an answer or a
        cancellation was meant for the previous daemon.
        """
        if method is None or method in {HELLO, INITIALIZED, CANCELLED}:
            return
        if method == LISTEN and request_id in self.script.subscriptions:
            return
        if request_id and self.own_tool and stand_in.asks_for_status(line) and not self.starts():
            # Nobody starts a daemon because of this question: the answer would be the same after a wait.
            self.refuse(request_id, method, absent(self.trouble))
            return
        if not self.heard:
            until -= WAIT_SECONDS - stand_in.patience(method)
        if not self.waiting.put(Item(request_id, method, line, until)) and request_id is not None:
            self.refuse(request_id, method, FULL)

    def forget(self, request_id: bytes) -> None:
        """Forget a request that the client no longer wants an answer to."""
        self.requests.settle(request_id)
        self.script.unsubscribed(request_id)
        self.waiting.cancel(request_id)
        self.unheard.cancel(request_id)

    def leaves(self, unsent: list[bytes]) -> None:
        """Note that the daemon is stopping, and which requests it has passed on to nobody."""
        self.is_leaving, self.through = True, False
        self.unsent.update(unsent)

    def was_asked(self, request_id: bytes) -> None:
        """Note a request of the daemon's to the client."""
        if len(self.asked) < MAX_ASKED:
            self.asked.add(request_id)

    def take_back(self) -> None:
        """Tell the client that nobody waits for its answers any more: the daemon that asked is gone."""
        for request_id in self.asked:
            self.down += GONE % request_id
        self.asked.clear()

    def _doubt(self, request_id: bytes) -> None:
        """Stop sending to a daemon that may never answer this request, until it does; hide that answer."""
        self.requests.settle(request_id)
        self.hidden.add(request_id)
        self.script.overheard()
        if self.through:
            self.through = False
            self.awaited = request_id

    def _stood_in(self, request_id: bytes, item: Item) -> bool:
        """Answer a request as the first daemon would have; whether that was possible."""
        line = None if self.heard else stand_in.answer(item, self.trouble)
        if line is None:
            return False
        self.down += line
        self.stands_in = True
        if item.method == TOOLS_LIST:
            self.own_tool = stand_in.STATUS.encode()
        elif item.method == INITIALIZE:
            self.script.shook_hands(request_id, item.line)
        elif item.method == LISTEN:
            self.script.subscribed(request_id, item.line)
        return True
