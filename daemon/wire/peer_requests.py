"""A request that a peer makes of somebody behind us, while it works on a request of theirs.

It is answered exactly once: what comes later, from whichever side, is dropped. Its peer may withdraw it, and
then whoever was going to answer is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from daemon.wire.envelope import INVALID_REQUEST

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Raw

    from daemon.wire.envelope import Buffer


class Responder(Protocol):
    """Takes the answer to one request to whoever has asked it."""

    def answer(self, result: Buffer) -> None:
        """Give the result, raw."""

    def refuse(self, code: int, message: str, data: object = None) -> None:
        """Give an error of ours (JSON-RPC)."""

    def refuse_as(self, error: Buffer) -> None:
        """Give a JSON-RPC error object as the one who was asked wrote it."""

    def report(self, params: dict[str, Raw]) -> None:
        """Report progress; its `progressToken` is that of the request."""


class PeerRequest:
    """One open request, and the way back for its answer."""

    __slots__ = ("_responder", "method", "on_withdrawn", "otherwise", "params", "server")

    def __init__(self, method: str, params: Raw | None, responder: Responder) -> None:
        """Begin open.

        Args:
            method: the method of the request.
            params: its params, raw.
            responder: takes the answer back.
        """
        self.method = method
        self.params = params
        self.server = ""
        """The name of the server that asks; set by its actor."""
        self.otherwise: bytes | None = None
        """What is answered in place of a refusal of ours: what mcpd knows without a client."""
        self.on_withdrawn: Callable[[str], None] | None = None
        """Told why nobody wants the answer any more; set by whoever is going to answer."""
        self._responder: Responder | None = responder

    def __repr__(self) -> str:
        """Without params: they may hold a secret."""
        return f"<PeerRequest {self.method} of {self.server}{'' if self.is_open else ', ended'}>"

    @property
    def is_open(self) -> bool:
        """Whether it was neither answered nor withdrawn."""
        return self._responder is not None

    def answer(self, result: Buffer) -> None:
        """Answer with a result."""
        if (responder := self._end()) is not None:
            responder.answer(result)

    def refuse(self, code: int, message: str, data: object = None) -> None:
        """Answer with an error of ours, or with what is known without a client."""
        if (responder := self._end()) is None:
            return
        if self.otherwise is not None:
            responder.answer(self.otherwise)
        else:
            responder.refuse(code, message, data)

    def refuse_as(self, error: Buffer) -> None:
        """Answer with an error object, raw."""
        if (responder := self._end()) is not None:
            responder.refuse_as(error)

    def report(self, params: dict[str, Raw]) -> None:
        """Pass progress on to the one who has asked."""
        if self._responder is not None:
            self._responder.report(params)

    def withdraw(self, reason: str) -> None:
        """End it without an answer: whoever has asked does not want one any more, or is gone."""
        if self._end() is not None and self.on_withdrawn is not None:
            self.on_withdrawn(reason)

    def end(self, reason: str) -> None:
        """End it on both sides: what it was asked for has ended."""
        if (responder := self._end()) is not None:
            responder.refuse(INVALID_REQUEST, reason)
            if self.on_withdrawn is not None:
                self.on_withdrawn(reason)

    def _end(self) -> Responder | None:
        responder, self._responder = self._responder, None
        return responder
