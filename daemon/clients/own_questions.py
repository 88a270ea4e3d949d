"""Questions that mcpd itself has for the user of a client, asked as a server's elicitations are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from daemon.wire.requests import RemoteError

if TYPE_CHECKING:
    from msgspec import Raw

    from daemon.wire.envelope import Buffer


class UserAnswer:
    """`wire.peer_requests.Responder` of a question of ours, for the task that waits for the answer."""

    def __init__(self) -> None:
        """Begin without an answer."""
        self.given = trio.Event()
        """Set once there is an answer, or there will be none."""
        self.result: bytes | None = None
        """The client's result, raw; None without one."""
        self.why = ""
        """Why there is none."""

    def answer(self, result: Buffer) -> None:
        """Take the client's result."""
        self.result = bytes(result)
        self.given.set()

    def refuse(self, code: int, message: str, data: object = None) -> None:
        """Take the reason why there is none."""
        self.why = f"the client has not asked: {message} ({code})"
        self.given.set()

    def refuse_as(self, error: Buffer) -> None:
        """Take the client's error."""
        told = RemoteError.from_wire(error)
        self.refuse(told.code, told.message)

    def report(self, params: dict[str, Raw]) -> None:
        """Nothing: nobody waits for how far a user is."""
