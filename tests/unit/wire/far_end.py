"""The far end of a WebSocket, in the hands of a test: wsproto over a stream of trio's."""

import attrs
import trio
from wsproto import WSConnection
from wsproto.events import Event


@attrs.define(eq=False)
class FarEnd:
    """What the far end says, and is told."""

    far: trio.SocketStream
    library: WSConnection
    _events: list[Event] = attrs.field(factory=list, init=False)

    async def say(self, *events: Event) -> None:
        """The far end says something, in one write."""
        await self.far.send_all(b"".join(map(self.library.send, events)))

    async def hear(self) -> Event:
        """The next thing that the far end is told."""
        while not self._events:
            data = await self.far.receive_some(64 * 1024)
            self.library.receive_data(data or None)
            self._events += self.library.events()
        return self._events.pop(0)
