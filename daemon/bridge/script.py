"""What a new daemon is told before anything else, so that it knows what the last one knew of this client."""

from __future__ import annotations

from time import CLOCK_BOOTTIME, clock_gettime, time

INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
PING_ID = b'"mcpd-connect"'
PING = b'{"jsonrpc":"2.0","id":%b,"method":"ping"}\n' % PING_ID
LIST_CHANGED = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'

_END = b"}}\n"

MAX_SUBSCRIPTIONS = 16
"""As many as the daemon allows to be open (`actors.session.MAX_SUBSCRIPTIONS`)."""


HELLO = b'{"jsonrpc":"2.0","method":"mcpd/hello","params":{%b}}\n'


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
        return self._hello[: -len(_END)] + b"," + resumed + _END if self._hello else HELLO % resumed

    def sequel(self) -> bytes:
        """What it is sent when it has answered."""
        self._reopened = set(self.subscriptions)
        return (INITIALIZED if self.initialized else b"") + b"".join(self.subscriptions.values())

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
