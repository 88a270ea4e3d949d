"""Requests other than `tools/call` on their way to a server: prompts, resources, completion, tasks.

They go the way that calls go: they wake a server, wait in line, are cancelled and report progress. What fails
is told as JSON-RPC has it, because a client reads the answer, and not a model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.clients.call import ClientCall, without_secrets
from daemon.errors import UpstreamCallError
from daemon.wire.envelope import INTERNAL_ERROR

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.errors import CallError
    from daemon.surfaces.base import Action, View
    from daemon.wire.envelope import Buffer


class ForwardedRequest(ClientCall, eq=False, kw_only=True):
    """A request of a client that a server answers."""

    route: Callable[[View], Action]
    """Says where it goes by what is known now; raises a `CallError` if it goes nowhere."""

    def decide(self, view: View, *, patient: bool) -> Action:
        """Where it goes (`ClientCall.decide`)."""
        del patient
        return self.route(view)

    def told(self) -> str:
        """How the log describes a request that reached no server."""
        return self.label

    def refused(self, error: Buffer) -> None:
        """Answer with the server's own error, without the secrets that it may quote."""
        assert self.upstream is not None, "only a server refuses"
        self.calls.server_requests.takes_url(self.upstream.name, error)
        code, message, data = without_secrets(error, self.calls.redact.of(self.upstream.name))
        self.calls.refuse(self, code, message, data, UpstreamCallError.code)

    def lost(self, error: CallError) -> None:
        """Answer with why there is no result and what to do."""
        data = {"code": error.code, **error.details}
        self.calls.refuse(self, INTERNAL_ERROR, f"{error.code}: {error.message}", data, error.code)
