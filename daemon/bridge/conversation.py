"""What is under way between one client and one daemon after the other; without descriptors and a clock.

While a daemon is there (`through`), lines pass in both directions as they are; only their ids are looked at.
When it goes, every open request is dealt with: what may have run is answered with `UpstreamLost`, for a second
time could do damage; what has no effect, and what was not sent to its end, waits for the next daemon. That one
is told the `Script` first. `sides` takes what the client says, `sides` what a daemon does.
"""

from __future__ import annotations

from time import CLOCK_BOOTTIME, clock_gettime, time

from daemon.bridge import stand_in
from daemon.bridge.lines import Outgoing
from daemon.bridge.requests import INITIALIZE, LISTEN, TOOLS_LIST, WAIT_SECONDS, Item, OpenRequests, Waiting
from daemon.bridge.stand_in import FULL, absent, refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from daemon.bridge.stand_in import Refusal


INITIALIZED_LINE = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
PING_ID = b'"mcpd-connect"'
PING = b'{"jsonrpc":"2.0","id":%b,"method":"ping"}\n' % PING_ID
LIST_CHANGED = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'

_END = b"}}\n"

MAX_SUBSCRIPTIONS = 16
"""As many as the daemon allows to be open (`actors.session.MAX_SUBSCRIPTIONS`)."""


HELLO_LINE = b'{"jsonrpc":"2.0","method":"mcpd/hello","params":{%b}}\n'


class Beginning:
    """When a conversation began, whatever somebody does to the clock meanwhile."""

    __slots__ = ("_read", "_since_boot")

    def __init__(self) -> None:
        """It begins now."""
        self._read, self._since_boot = time(), clock_gettime(CLOCK_BOOTTIME)

    def earliest(self) -> float:
        """In seconds since the epoch, as the clock said then or would have to say today: what is earlier."""
        return min(self._read, time() - (clock_gettime(CLOCK_BOOTTIME) - self._since_boot))


class Script:
    """What one client has said that outlives a daemon: its hello, its handshake, its subscriptions."""

    def __init__(self, hello: bytes) -> None:
        """Begin with the bridge's own hello."""
        self.initialized = False
        """Whether the client has finished the handshake."""
        self.subscriptions: dict[bytes, bytes] = {}
        """Open subscriptions of the 2026-07-28 protocol, acknowledged: id to request."""
        self.began: Beginning | None = None
        """When a daemon first said something, and so may have shown tools; None: none ever did."""
        self._hello = hello
        self._handshake: tuple[bytes, bytes] | None = None
        self._said: tuple[bytes, bytes] | None = None
        """The handshake that the present daemon was sent."""
        self._reopened: set[bytes] = set()

    @property
    def handshaken(self) -> bool:
        """Whether a daemon has answered the client's `initialize`: it belongs to that era, then."""
        return self._handshake is not None

    def shook_hands(self, request_id: bytes, line: bytes) -> None:
        """A daemon has accepted this `initialize`."""
        self._handshake = request_id, line

    def subscribed(self, request_id: bytes, line: bytes) -> None:
        """A daemon has acknowledged this `subscriptions/listen`."""
        if len(self.subscriptions) < MAX_SUBSCRIPTIONS:
            self.subscriptions[request_id] = line

    def unsubscribed(self, request_id: bytes) -> None:
        """A subscription, if it is one, has ended."""
        self.subscriptions.pop(request_id, None)
        self._reopened.discard(request_id)

    def opening(self) -> tuple[bytes, bytes]:
        """What a new daemon is sent at first, and the id of the one request in it.

        The client's own handshake, or a ping: nothing else is sent before it is answered. Until then nobody may
        be there at all: the connection waits in the queue of a daemon that is starting, or not coming.
        """
        self._reopened.clear()
        self._said = self._handshake
        request_id, line = self._handshake or (PING_ID, PING)
        return self._greeting() + line, request_id

    def overheard(self) -> None:
        """The present daemon was sent the client's own `initialize`, though it was answered here."""
        self._said = self._handshake

    def supplement(self) -> tuple[bytes, bytes] | None:
        """The handshake and its id, if it took place after `opening` was sent: it is to be sent as well."""
        if self._said is self._handshake or self._handshake is None:
            return None
        self._said = self._handshake
        request_id, line = self._handshake
        return line, request_id

    def _greeting(self) -> bytes:
        """The hello; a daemon that does not know the client is told that others do, and since when."""
        if self.began is None:
            return self._hello
        resumed = b'"resumed":%.6f' % self.began.earliest()
        return self._hello[: -len(_END)] + b"," + resumed + _END if self._hello else HELLO_LINE % resumed

    def sequel(self) -> bytes:
        """What it is sent when it has answered."""
        self._reopened = set(self.subscriptions)
        return (INITIALIZED_LINE if self.initialized else b"") + b"".join(self.subscriptions.values())

    def announcement(self) -> bytes:
        """What the client is told then: another daemon may offer other tools."""
        return LIST_CHANGED if self.initialized else b""

    def reopened(self, request_id: bytes, line: bytes | bytearray) -> bytes | None:
        """A new daemon acknowledges a subscription.

        Args:
            request_id: of the subscription.
            line: the acknowledgement.

        Returns:
            What the client is told instead, which knows of no new one: that the tools may have changed, if it
            is told of that at all. None: it is new to the client as well.
        """
        if request_id not in self._reopened:
            return None
        self._reopened.discard(request_id)
        if b'"toolsListChanged":true' not in line:
            return b""
        meta = b'{"io.modelcontextprotocol/subscriptionId":%b}' % request_id
        return b'%b,"params":{"_meta":%b}}\n' % (LIST_CHANGED[:-2], meta)


HELLO = b'"mcpd/hello"'
INITIALIZED = b'"notifications/initialized"'
CANCELLED = b'"notifications/cancelled"'


class Conversation:
    """One client's state; `up` is for the daemon, `down` for the client."""

    def __init__(self, hello: bytes, *, through: bool = True) -> None:
        """Begin.

        Args:
            hello: sent to each daemon before all else.
            through: whether a daemon is there.
        """
        self.up = Outgoing()
        self.down = bytearray()
        self.through = through
        """Whether a daemon takes what the client sends."""
        self.trouble = ""
        """Why there is none, and what to do."""
        self.stands_in = False
        """Whether the client was answered here, for want of a daemon's word."""
        self.own_tool = b""
        """The name of our own tool, if the client was given it: its model may call it ever after."""
        self.script = Script(hello)
        self.requests = OpenRequests()
        self.waiting = Waiting()
        self.unheard = Waiting()
        """What the client began with, and a daemon has that never said a word: it is in `requests` as well."""
        self.awaited: bytes | None = None
        """The request whose answer makes a daemon one that takes what the client sends."""
        self.refusal = ""
        """Why the present daemon does not serve this client, if it said so to what it was asked first."""
        self.hidden: set[bytes] = set()
        """Requests whose answers are not for the client: they were our own, or were answered here."""
        if through:
            self.up.put(hello)

    @property
    def heard(self) -> bool:
        """Whether any daemon has said anything."""
        return self.script.began is not None

    @property
    def is_settled(self) -> bool:
        """Whether a daemon takes what the client sends, and one has ever answered: nothing is due unasked."""
        return self.through and self.heard

    @property
    def deadline(self) -> float | None:
        """When `expire` has something to do (seconds, monotonic); None: nothing waits."""
        deadlines = [self.waiting.deadline(), self.unheard.deadline()]
        return min((each for each in deadlines if each is not None), default=None)

    def expire(self, now: float) -> None:
        """Answer what has waited long enough."""
        for item in self.waiting.expired(now):
            if item.id is not None and not self._stood_in(item.id, item):
                waited = WAIT_SECONDS if self.heard else stand_in.patience(item.method)
                self.refuse(item.id, item.method, absent(self.trouble, waited))
        for item in self.unheard.expired(now):
            if item.id is not None and self._stood_in(item.id, item):
                self._doubt(item.id)

    def refuse(self, request_id: bytes, method: bytes | None, refusal: Refusal) -> None:
        """Answer a request in the daemon's place."""
        self.down += refuse(request_id, method, refusal, modern=not self.script.handshaken)

    def hold(self, request_id: bytes | None, method: bytes | None, line: bytes, until: float) -> None:
        """Keep a line for the next daemon, if it is any business of that one.

        It is told the hello, the end of the handshake and the subscriptions anyway; an answer, or what cancels
        a request, was for the last one.
        """
        if method is None or method in {HELLO, INITIALIZED, CANCELLED}:
            return
        if method == LISTEN and request_id in self.script.subscriptions:
            return
        if not self.heard:
            until -= WAIT_SECONDS - stand_in.patience(method)
        if not self.waiting.put(Item(request_id, method, line, until)) and request_id is not None:
            self.refuse(request_id, method, FULL)

    def forget(self, request_id: bytes) -> None:
        """The client wants no answer to a request any more."""
        self.requests.settle(request_id)
        self.script.unsubscribed(request_id)
        self.waiting.cancel(request_id)
        self.unheard.cancel(request_id)

    def _doubt(self, request_id: bytes) -> None:
        """The daemon that has this request may never answer it: what follows waits until it does, unseen."""
        self.requests.settle(request_id)
        self.hidden.add(request_id)
        self.script.overheard()
        if self.through:
            self.through = False
            self.awaited = request_id

    def _stood_in(self, request_id: bytes, item: Item) -> bool:
        """Whether a request was answered as the first daemon would have."""
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
