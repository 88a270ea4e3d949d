"""What passes between a server and an operator while the server works: progress, and what the server asks.

It travels on the operator's own connection, as MCP's notifications and requests do on a client's. A question
ends with the call that it belongs to (`upstreams.attribution`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from daemon.clients.server_requests import ServerRequests
from daemon.clients.subscribers import ConnectedClients
from daemon.protocol import PROGRESS

if TYPE_CHECKING:
    from daemon.wire.outbox import Outbox
    from daemon.wire.peer import Peer
    from daemon.wire.peer_requests import PeerRequest


class OperatorPeer:
    """The operator's side of one command that a server works on."""

    def __init__(self, peer: Peer, outbox: Outbox, request_id: bytes) -> None:
        """Begin.

        Args:
            peer: the operator.
            outbox: flushed when something is to reach the operator.
            request_id: the operator's request.
        """
        self._peer = peer
        self._outbox = outbox
        self._request_id = request_id
        # Alone: what servers tell their clients is not for operators.
        self._server_requests = ServerRequests(peer, ConnectedClients(), (request_id,))

    def declare(self, capabilities: Raw) -> None:
        """Note what the operator can be asked (MCP, `ClientCapabilities`)."""
        self._server_requests.capabilities = capabilities

    def report(self, params: dict[str, Raw]) -> None:
        """Report the server's progress under the id of the operator's request."""
        told = msgspec.json.encode({**params, "progressToken": Raw(self._request_id)})
        self._peer.notify(PROGRESS, told, self._request_id)
        self._outbox.flush()

    def tell(self, method: str, params: object) -> None:
        """Tell the operator something while the command works; `params` is encoded as a JSON object."""
        self._peer.notify(method, msgspec.json.encode(params), self._request_id)
        self._outbox.flush()

    def ask(self, request: PeerRequest) -> None:
        """Put what the server asks to the operator, or answer it at once in place of one who cannot."""
        self._server_requests.ask(request, self._request_id)
        self._outbox.flush()
