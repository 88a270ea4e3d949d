"""Requests other than `tools/call` on their way to a server: prompts, resources, completion, tasks.

They go the way that calls go: they wake a server, wait in line, are cancelled and report progress. What fails
is told as JSON-RPC has it, because a client reads the answer, and not a model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon import protocol
from daemon.clients.call import ClientCall
from daemon.clients.refusals import without_secrets
from daemon.errors import (
    PromptDisabled,
    ResourceDisabled,
    UnknownPrompt,
    UnknownResource,
    UpstreamCallError,
)
from daemon.surfaces.base import AwaitListing
from daemon.wire.envelope import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.errors import CallError
    from daemon.surfaces.base import Action, View
    from daemon.wire.envelope import Buffer

NO_COMPLETION = b'{"completion":{"values":[]}}'
"""The answer in place of a server that completes nothing."""


def _awaits_nothing(_view: View) -> AwaitListing:
    return AwaitListing()


class ForwardedRequest(ClientCall, eq=False, kw_only=True):
    """A request of a client that a server answers."""

    route: Callable[[View], Action]
    """Says where it goes by what is known now; raises a `CallError` if it goes nowhere."""
    awaits: Callable[[View], AwaitListing] = _awaits_nothing
    """Says which servers may list what it asks for, but have not yet."""

    def decide(self, view: View, *, patient: bool) -> Action:
        """Where it goes (`ClientCall.decide`)."""
        try:
            return self.route(view)
        except (UnknownPrompt, UnknownResource):
            if patient and (awaited := self.awaits(view)).servers:
                return awaited
            raise

    def told(self) -> str:
        """How the log describes a request that reached no server."""
        return self.label

    def answered(self, result: Buffer) -> None:
        """Answer the client with the result as its author wrote it.

        What a modern client reads from an older server has to say that it must not be cached.
        """
        if self.method == protocol.READ_RESOURCE and self.request.modern:
            result = protocol.completed(bytes(result), protocol.UNCACHED)
        super().answered(result)

    def refused(self, error: Buffer) -> None:
        """Answer with the server's own error, without the secrets that it may quote."""
        assert self.upstream is not None, "only a server refuses"
        self.calls.server_requests.takes_url(self.upstream.name, error)
        code, message, data = without_secrets(error, self.calls.redact.of(self.upstream.of))
        if self.method == protocol.COMPLETE and code == METHOD_NOT_FOUND:
            self.answered(NO_COMPLETION)
        else:
            self.calls.refuse(self, code, message, data, UpstreamCallError.code)

    def lost(self, error: CallError) -> None:
        """Answer with why there is no result and what to do."""
        data = {"code": error.code, **error.details}
        self.calls.refuse(self, self._code_of(error), f"{error.code}: {error.message}", data, error.code)

    def _code_of(self, error: CallError) -> int:
        if isinstance(error, UnknownResource | ResourceDisabled) and not self.request.modern:
            return protocol.RESOURCE_NOT_FOUND
        wrong = (UnknownPrompt, PromptDisabled, UnknownResource, ResourceDisabled)
        return INVALID_PARAMS if isinstance(error, wrong) else INTERNAL_ERROR
