"""The state of one client's conversation with successive daemons; no descriptors, no monotonic clock.

When a daemon ends, requests that it may have executed fail with `UpstreamLost`: a second execution could do
damage. Others wait for the next daemon, which gets the `Script` first: hello, handshake and subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import CLOCK_BOOTTIME, clock_gettime, time

from daemon.bridge import frames, requests, stand_in
from daemon.bridge.frames import Outgoing
from daemon.bridge.stand_in import FULL, Refusal, absent, refuse

INITIALIZED_LINE = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
PING_ID = b'"mcpd-connect"'
PING = b'{"jsonrpc":"2.0","id":%b,"method":"ping"}\n' % PING_ID
CHOOSING = b'"servers":'
"""Found in a hello that names servers. The daemon's handshake may wait for these, so the bridge pings first."""
LIST_CHANGED = b'{"jsonrpc":"2.0","method":"notifications/%b/list_changed"}\n'
UPDATED = b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":%b}}\n'
LISTS = (b"tools", b"prompts", b"resources")  # the lists that a daemon announces changes of
GONE = (
    b'{"jsonrpc":"2.0","method":"notifications/cancelled",'
    b'"params":{"requestId":%b,"reason":"the daemon that asked is gone"}}\n'
)

_END = b"}}\n"

MAX_SUBSCRIPTIONS = 16  # the daemon's own limit (`clients.notifications`)

MAX_WATCHED = 1000  # resources that are subscribed to again at the next daemon: one client may have as many

MAX_ASKED = 64
"""Most unanswered requests of a daemon that are cancelled at its end: more than one client gets."""

HELLO_LINE = b'{"jsonrpc":"2.0","method":"mcpd/hello","params":{%b}}\n'


class Beginning:
    """The time at which a conversation began; setting the clock never makes it later."""

    __slots__ = ("_read", "_since_boot")

    def __init__(self) -> None:
        self._read, self._since_boot = time(), clock_gettime(CLOCK_BOOTTIME)

    def earliest(self) -> float:
        """Epoch seconds: the earlier of two readings, the clock then, and the clock now less the time since."""
        return min(self._read, time() - (clock_gettime(CLOCK_BOOTTIME) - self._since_boot))


class Script:
    """The client's hello, handshake and subscriptions, which outlive a daemon."""

    def __init__(self, hello: bytes) -> None:
        self.initialized = False  # whether the client has finished the handshake
        self.subscriptions: dict[bytes, bytes] = {}
        """Open subscriptions of the 2026-07-28 protocol that were acknowledged: request line by id."""
        self.settings: dict[bytes, tuple[bytes, bytes]] = {}
        """Requests that every daemon must get, as id and line; the key is the level or resource they set."""
        self.began: Beginning | None = None
        """When a daemon first sent bytes, and may have shown tools; None if no daemon ever did."""
        self._hello = hello
        self._handshake: tuple[bytes, bytes] | None = None
        self._sent: tuple[bytes, bytes] | None = None  # the handshake that the present daemon was sent
        self._reopened: set[bytes] = set()

    @property
    def handshaken(self) -> bool:
        """Whether the client's `initialize` was answered: then it is a client of the handshake era."""
        return self._handshake is not None

    def shook_hands(self, request_id: bytes, line: bytes) -> None:
        """Record an accepted `initialize`."""
        self._handshake = request_id, line

    def subscribed(self, request_id: bytes, line: bytes) -> None:
        """Record an acknowledged `subscriptions/listen`."""
        if len(self.subscriptions) < MAX_SUBSCRIPTIONS:
            self.subscriptions[request_id] = line

    def unsubscribed(self, request_id: bytes) -> None:
        """Forget a subscription, if the id belongs to one."""
        self.subscriptions.pop(request_id, None)
        self._reopened.discard(request_id)

    def was_set(self, request_id: bytes, method: bytes | None, line: bytes) -> None:
        """Record a granted request that sets something, or forget the setting that it undoes."""
        if method == requests.SET_LEVEL:
            self.settings[requests.SET_LEVEL] = request_id, line
        elif (
            method in {requests.SUBSCRIBE, requests.UNSUBSCRIBE} and (resource := frames.uri(line)) is not None
        ):
            self.settings.pop(resource, None)
            if method == requests.SUBSCRIBE and len(self.settings) < MAX_WATCHED:
                self.settings[resource] = request_id, line

    def opening(self) -> tuple[bytes, bytes]:
        """The first bytes for a new daemon, and the id of the one request in them: the handshake, or a ping.

        Nothing more is sent before its answer, because the connection may wait for a daemon that never starts.
        """
        self._reopened.clear()
        self._sent = self._handshake
        request_id, line = self._handshake or (PING_ID, PING)
        return self._greeting() + line, request_id

    def overheard(self) -> None:
        """Record that the present daemon also got the client's `initialize`, which the bridge answered."""
        self._sent = self._handshake

    def supplement(self) -> tuple[bytes, bytes] | None:
        """The handshake and its id, if it was made after `opening` and must still be sent; else None."""
        if self._sent is self._handshake or self._handshake is None:
            return None
        self._sent = self._handshake
        request_id, line = self._handshake
        return line, request_id

    def _greeting(self) -> bytes:
        """The hello; it also tells a later daemon when the conversation began."""
        if self.began is None:
            return self._hello
        resumed = b'"resumed":%.6f' % self.began.earliest()
        return self._hello[: -len(_END)] + b"," + resumed + _END if self._hello else HELLO_LINE % resumed

    def sequel(self) -> bytes:
        """The bytes for a new daemon after it has answered the opening request."""
        self._reopened = set(self.subscriptions)
        first = INITIALIZED_LINE if self.initialized else b""
        return first + b"".join([*self.subscriptions.values(), *(line for _id, line in self.settings.values())])

    def announcement(self) -> bytes:
        """Notifications about a new daemon's lists and the watched resources, which may have changed."""
        watched = b"".join(UPDATED % resource for resource in self.settings if resource != requests.SET_LEVEL)
        return b"".join(LIST_CHANGED % each for each in LISTS) + watched if self.initialized else b""

    def reopened(self, request_id: bytes, line: bytes | bytearray) -> bytes | None:
        """The notifications for a subscription that a new daemon has acknowledged; None if it is new."""
        if request_id not in self._reopened:
            return None
        self._reopened.discard(request_id)
        changed = [LIST_CHANGED % each for each in LISTS if b'"%bListChanged":true' % each in line]
        meta = b'{"io.modelcontextprotocol/subscriptionId":%b}' % request_id
        return b"".join(b'%b,"params":{"_meta":%b}}\n' % (each[:-2], meta) for each in changed)


HELLO = b'"mcpd/hello"'
HELD = b'"mcpd/held"'
INITIALIZED = b'"notifications/initialized"'
CANCELLED = b'"notifications/cancelled"'


class Conversation:
    """One client's requests, and the bytes for each side: `up` for the daemon, `down` for the client."""

    def __init__(
        self, hello: bytes, *, through: bool = True, starts: Callable[[], bool] = lambda: True
    ) -> None:
        """`starts` returns whether a daemon may be started; it is called only if no daemon is there."""
        self.starts = starts
        self.up = Outgoing()
        self.down = bytearray()
        self.through = through  # whether a daemon takes the client's lines
        self.trouble = ""  # the reason why no daemon is there, and the remedy
        self.stands_in = False  # whether the client was answered here because no daemon answered
        self.own_tool = b""  # our own tool's name once the client has it: its model may call it at any time
        self.script = Script(hello)
        self.requests = requests.OpenRequests()
        self.waiting = requests.Waiting()
        self.unheard = requests.Waiting()
        """The client's first requests to a daemon that has sent nothing yet; `requests` has them, too."""
        self.awaited: bytes | None = None
        """The id of the request whose answer shows that the daemon takes the client's lines."""
        self.refusal = ""  # the daemon's reason for refusing the opening request
        self.is_leaving = False  # whether the daemon is stopping: it still answers, but takes nothing more
        self.unsent: set[bytes] = set()
        """Ids of open requests that this daemon has not forwarded, and that the next daemon gets."""
        self.asked: set[bytes] = set()  # ids of the daemon's requests that the client has not answered
        self.hidden: set[bytes] = set()
        """Ids whose answers the client must not see: the bridge made or answered these requests itself."""
        if through:
            self.up.put(hello)
        if through and CHOOSING in hello:
            self.hidden.add(PING_ID)
            self.up.put(PING)

    @property
    def heard(self) -> bool:
        """Whether any daemon has ever sent a byte."""
        return self.script.began is not None

    @property
    def is_settled(self) -> bool:
        """Whether a daemon takes the client's lines and has answered, so that no deadline is pending."""
        return self.through and self.heard

    @property
    def deadline(self) -> float | None:
        """When `expire` is due (seconds, monotonic); None if nothing waits."""
        deadlines = [self.waiting.deadline(), self.unheard.deadline()]
        return min((each for each in deadlines if each is not None), default=None)

    def expire(self, now: float, *, hopeless: bool = False) -> None:
        """Answer the requests that have waited long enough; all of them if `hopeless`."""
        for item in self.waiting.expired(inf if hopeless else now):
            if item.id and not self._stood_in(item):
                waited = requests.WAIT_SECONDS if self.heard else stand_in.patience(item.method)
                waited -= max(0.0, item.until - now)
                self.refuse(item.id, item.method, absent(self.trouble, waited))
        for item in self.unheard.expired(now):
            if self._stood_in(item):
                self._doubt(item.id)

    def refuse(self, request_id: bytes, method: bytes | None, refusal: Refusal) -> None:
        """Answer a request with a refusal in the daemon's place."""
        self.down += refuse(request_id, method, refusal, modern=not self.script.handshaken)

    def hold(self, request_id: bytes | None, method: bytes | None, line: bytes, until: float) -> None:
        """Keep a line for the next daemon, unless the script repeats it or only the last daemon needed it."""
        if method is None or method in {HELLO, HELD, INITIALIZED, CANCELLED}:
            return
        if method == requests.LISTEN and request_id in self.script.subscriptions:
            return
        if request_id and self.own_tool and stand_in.asks_for_status(line) and not self.starts():
            # This question starts no daemon, so a wait would not change the answer.
            self.refuse(request_id, method, absent(self.trouble))
            return
        if not self.heard:
            until -= requests.WAIT_SECONDS - stand_in.patience(method)
        if not self.waiting.put(requests.Item(request_id or b"", method, line, until)) and request_id:
            self.refuse(request_id, method, FULL)

    def forget(self, request_id: bytes) -> None:
        """Forget a request whose answer the client no longer wants."""
        self.requests.settle(request_id)
        self.script.unsubscribed(request_id)
        self.waiting.cancel(request_id)
        self.unheard.cancel(request_id)

    def leaves(self, unsent: list[bytes]) -> None:
        """Record that the daemon is stopping, and its `unsent` requests; tell it that nothing more comes."""
        self.up.put(b'{"jsonrpc":"2.0","method":%b}\n' % HELD)
        self.is_leaving, self.through = True, False
        self.unsent.update(unsent)

    def was_asked(self, request_id: bytes) -> None:
        """Record a request that the daemon makes of the client."""
        if len(self.asked) < MAX_ASKED:
            self.asked.add(request_id)

    def take_back(self) -> None:
        """Cancel the daemon's requests at the client, because the daemon has ended."""
        for request_id in self.asked:
            self.down += GONE % request_id
        self.asked.clear()

    def _doubt(self, request_id: bytes) -> None:
        """Send nothing to a daemon until it answers this request (it may never), and hide its answer."""
        self.requests.settle(request_id)
        self.hidden.add(request_id)
        self.script.overheard()
        if self.through:
            self.through = False
            self.awaited = request_id

    def _stood_in(self, item: requests.Item) -> bool:
        line = None if self.heard else stand_in.answer(item, self.trouble)
        if line is None:
            return False
        self.down += line
        self.stands_in = True
        if item.method == requests.TOOLS_LIST:
            self.own_tool = stand_in.STATUS.encode()
        elif item.method == requests.INITIALIZE:
            self.script.shook_hands(item.id, item.line)
        elif item.method == requests.LISTEN:
            self.script.subscribed(item.id, item.line)
        return True
