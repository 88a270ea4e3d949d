"""A blocking WebSocket with subprotocol `mcp`, for both sides, for threads."""

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Self

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Event, Message, Ping, Request, TextMessage

CHUNK = 65536


class WebSocket:
    """One end of a WebSocket; its iterator yields messages."""

    def __init__(self, stream: socket.socket, kind: ConnectionType) -> None:
        self._stream = stream
        self._protocol = WSConnection(kind)
        self._lock = threading.Lock()

    @classmethod
    def accepted(cls, stream: socket.socket) -> Self:
        """The server's end."""
        made = cls(stream, ConnectionType.SERVER)
        for event in made._events():
            if isinstance(event, Request):
                made._say(AcceptConnection(subprotocol="mcp" if "mcp" in event.subprotocols else None))
                break
        return made

    @classmethod
    def opened(cls, stream: socket.socket, path: str, headers: Mapping[str, str]) -> Self:
        """The client's end."""
        made = cls(stream, ConnectionType.CLIENT)
        extra = [(name.encode(), value.encode()) for name, value in headers.items()]
        made._say(Request(host="127.0.0.1", target=path, subprotocols=["mcp"], extra_headers=extra))
        event = next(made._events())
        assert isinstance(event, AcceptConnection), event
        return made

    def send(self, data: bytes) -> None:
        """Send a message."""
        self._say(Message(data=data.decode()))

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self._say(CloseConnection(code=1000))
        self._stream.close()

    def __iter__(self) -> Iterator[bytes]:
        text = ""
        for event in self._events():
            if isinstance(event, TextMessage):
                text += event.data
                if event.message_finished:
                    yield text.encode()
                    text = ""
            elif isinstance(event, Ping):
                self._say(event.response())
            elif isinstance(event, CloseConnection):
                return

    def _events(self) -> Iterator[object]:
        while True:
            yield from self._protocol.events()
            try:
                chunk = self._stream.recv(CHUNK)
            except OSError:
                return
            if not chunk:
                return
            with self._lock:
                self._protocol.receive_data(chunk)

    def _say(self, event: Event) -> None:
        with self._lock:
            self._stream.sendall(self._protocol.send(event))
