"""A server over a link that the test holds, with its admission, on a virtual clock."""

from typing import Any

import msgspec
import trio
import trio.testing

from daemon.config.config_model import Server
from daemon.config.tuning import Timeouts
from daemon.upstreams.call_admission import Admission
from daemon.upstreams.handshake import keep_expiring
from daemon.upstreams.transports.server_connection import RawConnection
from daemon.wire.outbox import Outbox
from daemon.wire.requests import Exchange
from tests.fakes_upstream import tool_call
from tests.unit.upstreams.asking import Wire
from tests.unit.upstreams.transports.listening import Listener


class Served:
    """One connection, its calls, and what its server hears."""

    def __init__(self, **timeouts: int) -> None:
        self.wire, self.listener, self.problem = Wire(), Listener(), ""
        self.server = Server(name="s", command="x", timeouts=Timeouts(**timeouts))
        connection: Any = RawConnection(self.wire, outbox=Outbox(), events=self.listener)
        self.connection = connection
        self.admission = Admission("s", connection, self.server.limits)

    async def begin(self, nursery: trio.Nursery) -> None:
        """Receive, and give up what takes too long."""
        nursery.start_soon(self.connection.run)
        nursery.start_soon(
            keep_expiring, self.admission, self.server.timeouts, lambda: None, lambda: self.problem
        )
        await trio.testing.wait_all_tasks_blocked()

    def call(self, exchange: Exchange) -> int:
        """A client calls; returns the id that the server sees."""
        self.admission.admit(tool_call("t"), exchange)
        uid: int = self.heard()[-1]["id"]
        return uid

    def heard(self) -> list[dict[str, Any]]:
        """What the server has been sent since."""
        found = [msgspec.json.decode(frame) for frame in self.wire.to_peer]
        self.wire.to_peer.clear()
        return found

    def says(self, **message: Any) -> None:
        """The server says something."""
        self.wire.say(message)
        self.wire.arrive()

    def asks(self, ask_id: object = "q", method: str = "roots/list", **params: Any) -> None:
        """The server asks something, which goes to its calls."""
        self.says(id=ask_id, method=method, params=params)
        request, cause = self.listener.questions[-1]
        request.server = "s"
        self.admission.attribution.take(request, cause)
