"""What is under way between one client and one daemon after the other; without descriptors and a clock.

While a daemon is there (`through`), lines pass in both directions as they are; only their ids are looked at.
When it goes, every open request is dealt with: what may have run is answered with `UpstreamLost`, for a second
time could do damage; what has no effect, and what was not sent to its end, waits for the next daemon. That one
is told the `Script` first. `client_side` takes what the client says, `daemon_side` what a daemon does.
"""

from __future__ import annotations

from daemon.bridge import stand_in
from daemon.bridge.answers import FULL, absent, refuse
from daemon.bridge.outgoing import Outgoing
from daemon.bridge.requests import INITIALIZE, LISTEN, TOOLS_LIST, WAIT_SECONDS, Item, OpenRequests, Waiting
from daemon.bridge.script import Script

TYPE_CHECKING = False
if TYPE_CHECKING:
    from daemon.bridge.answers import Refusal

HELLO = b'"mcpd/hello"'
INITIALIZED = b'"notifications/initialized"'
CANCELLED = b'"notifications/cancelled"'


class Exchange:
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
