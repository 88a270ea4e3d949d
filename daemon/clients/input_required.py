"""Results that ask a client for input, and the states that a retry must bring (MCP 2026-07-28, MRTR)."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, Literal, Protocol, TypeVar

import attrs
import msgspec
import trio
from msgspec import UNSET, Raw, Struct, UnsetType

from daemon.errors import UpstreamUnavailable
from daemon.protocol import decode_members, decode_result_type, decoded
from daemon.surfaces.surface import Forward
from daemon.wire.envelope import Buffer
from daemon.wire.requests import PeerRequest

PREFIX = "mcpd.parked."
"""The prefix of mcpd's states; the SDKs' states begin with a version or are base64."""

STATE_BYTES = 32
"""Random bytes in a state: 256 bits cannot be guessed."""

TTL = 600.0
"""Seconds for a client's answers, as in the MCP SDK."""

CHECK_SECONDS = 1.0
"""Seconds between checks for expired states, while there are any."""

MAX_STATES = 1024
"""Waiting calls of all clients: as many as there may be clients (`limits.connections`)."""

MAX_OF_CLIENT = 64
"""Waiting calls of one client; over HTTP all clients with one token and no session count as one client."""

MAX_OF_SERVER = 32
"""Waiting calls of one server, each of which keeps its place there: half of its default calls in flight."""

C = TypeVar("C")


MAX_HELD_BYTES = 64 * 1024 * 1024
"""Bytes of answers kept for parked calls: four of the largest that a server may send."""


@attrs.define(eq=False)
class WaitingCall(Generic[C]):
    """A call that waits until its client brings back the state."""

    owner: bytes = attrs.field(repr=False)
    """A digest of the client and the request that may bring the state."""
    client: Hashable
    resume: Callable[[C, Mapping[str, Raw]], bool] = attrs.field(repr=False)
    """Continues with the client's retry and its responses; True if the retry need not be judged again."""
    give_up: Callable[[str], None] = attrs.field(repr=False)
    server: str | None = None
    held: int = 0
    """Bytes kept for the call, with an early answer of its server."""
    parked: C | None = None
    until: float = attrs.field(default=0.0, init=False)
    """When the state expires, on trio's clock."""


class Parked(Protocol):
    """A call parked at its server while its client answers questions (`asking.ParkedCall`)."""

    def ask(self, request: PeerRequest) -> None:
        """Relay a server's request to the client, now or in the client's next round."""

    def hold(self, answer: Callable[[], None], size: int) -> None:
        """Keep an answer of `size` bytes until the client returns."""


class RequestStates:
    """All valid states, each with its waiting call."""

    def __init__(self) -> None:
        self._given: dict[bytes, WaitingCall[Any]] = {}
        self._any = trio.Event()

    def __len__(self) -> int:
        return len(self._given)

    def give(self, waiting: WaitingCall[Any]) -> str | None:
        """Make a state for a call; None if too many calls wait."""
        others = self.waiting()
        if (
            len(others) >= MAX_STATES
            or sum(each.client == waiting.client for each in others) >= MAX_OF_CLIENT
            or sum(each.server == waiting.server is not None for each in others) >= MAX_OF_SERVER
        ):
            return None
        state = PREFIX + secrets.token_urlsafe(STATE_BYTES)
        waiting.until = trio.current_time() + TTL
        self._given[_digest(state)] = waiting
        self._any.set()
        return state

    def waiting(self) -> list[WaitingCall[Any]]:
        """All waiting calls, oldest first."""
        return list(self._given.values())

    def find(self, state: str, owner: bytes) -> WaitingCall[Any] | None:
        """The waiting call of a state; None if the state is unknown, expired, or another owner's."""
        waiting = self._given.get(_digest(state))
        if waiting is None or trio.current_time() >= waiting.until:
            return None
        return waiting if hmac.compare_digest(waiting.owner, owner) else None

    def use(self, state: str) -> None:
        """Invalidate a state."""
        del self._given[_digest(state)]

    def may_hold(self, size: int) -> bool:
        """Whether there is room to keep an answer of `size` bytes until its client returns."""
        return sum(each.held for each in self._given.values()) + size <= MAX_HELD_BYTES

    def leave(self, client: Hashable) -> None:
        """End the waiting calls of a client that has left."""
        for digest, waiting in list(self._given.items()):
            if waiting.client == client:
                self._give_up(digest, "the client is gone")

    async def run(self, flush: Callable[[], None]) -> None:
        """End expired calls until cancelled; `flush` writes queued frames."""
        while True:
            await self._any.wait()
            self._any = trio.Event()
            while self._given:
                await trio.sleep(CHECK_SECONDS)
                self.expire()
                flush()

    def expire(self) -> None:
        """End the calls that have expired."""
        now = trio.current_time()
        for digest, waiting in list(self._given.items()):
            if now < waiting.until:
                break
            self._give_up(digest, f"the client has not answered within {TTL:g} s")

    def _give_up(self, digest: bytes, reason: str) -> None:
        self._given.pop(digest).give_up(reason)


def _digest(state: str) -> bytes:
    return hashlib.sha256(state.encode(errors="replace")).digest()


ASKING = frozenset({"tools/call", "prompts/get", "resources/read"})

REQUESTS, RESPONSES, STATE = "inputRequests", "inputResponses", "requestState"

FIRST_PAUSE = 0.05
"""Seconds before mcpd repeats a call whose server asks nothing yet; doubled each round, as in the MCP SDK."""

LONGEST_PAUSE = 0.25
"""The longest such pause, in seconds."""


_SAYS_SO = re.compile(rb'"input_required"')
"""Results without a match, which are nearly all, need not be decoded."""


class InputRequest(Struct):
    """One question of a server to a client."""

    method: str
    params: Raw = Raw(b"{}")


class InputRequired(Struct):
    """A server's questions, and the state that it wants back."""

    inputRequests: dict[str, InputRequest] | None = None  # noqa: N815 - the wire's name
    requestState: Raw | UnsetType = UNSET  # noqa: N815 - the wire's name


class Elicited(Struct):
    """The user's answer to a question."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Raw] | None = None


class _Sampled(Struct):
    role: str
    model: str
    content: dict[str, Raw] | list[dict[str, Raw]]


class _Roots(Struct):
    roots: list[dict[str, Raw]]


decode_elicited = msgspec.json.Decoder(Elicited).decode
_SHAPES: Mapping[str, Callable[[Raw], object]] = {
    "elicitation/create": decode_elicited,
    "sampling/createMessage": msgspec.json.Decoder(_Sampled).decode,
    "roots/list": msgspec.json.Decoder(_Roots).decode,
}
_decode_required = msgspec.json.Decoder(InputRequired).decode
_decode_state = msgspec.json.Decoder(str | None).decode
_encode = msgspec.json.encode


class Round(msgspec.Struct, eq=False):
    """The progress of a call whose server asks for input in several rounds."""

    server: str
    head: bytes
    """Identifies the call's target (`surfaces.surface.Forward.head`)."""
    label: str
    number: int = 0
    pause: float = FIRST_PAUSE

    def require(self, forward: Forward) -> None:
        """Check that a call still goes to the server that asked. Raises UpstreamUnavailable if not."""
        if (forward.server, forward.head) != (self.server, self.head):
            text = (
                f"{self.label} no longer has this name. The call was not sent again: its"
                " client's answers are for the former tool only."
            )
            raise UpstreamUnavailable(text, server=self.server)


def result_type(result: Buffer) -> str | None:
    """The `resultType` of a result; empty without one, None if the result is unreadable."""
    tag = decoded(decode_result_type, result)
    return None if tag is None else tag.resultType or ""


def input_required_by(result: Buffer) -> InputRequired | None:
    """The input that a result asks for; None for a final answer. Raises MsgspecError if malformed."""
    raw = memoryview(result)
    if _SAYS_SO.search(raw) is None or result_type(raw) != "input_required":
        return None
    return _decode_required(bytes(raw))


def asking_result(requests: Mapping[str, PeerRequest | InputRequest], state: str) -> bytes:
    """Make a result that asks a client these questions."""
    asked = b",".join(
        b'%b:{"method":%b,"params":%b}'
        % (_encode(key), _encode(each.method), bytes(each.params) if isinstance(each.params, Raw) else b"{}")
        for key, each in requests.items()
    )
    return b'{"resultType":"input_required","inputRequests":{%b},"requestState":%b}' % (asked, _encode(state))


def state_in(others: Mapping[str, Raw]) -> str | None:
    """The state in a request; None without one, or if it is not a string."""
    given = others.get(STATE)
    return None if given is None else decoded(_decode_state, given)


def responses_in(others: Mapping[str, Raw]) -> dict[str, Raw]:
    """The responses in a request, by key. Raises MsgspecError if they are not an object."""
    given = others.get(RESPONSES)
    return {} if given is None else decode_members(given)


def fitting(
    responses: Mapping[str, Raw], asked: Mapping[str, PeerRequest] | Mapping[str, InputRequest]
) -> dict[str, Raw]:
    """The responses that answer one of these questions and fit it."""
    return {key: each for key, each in responses.items() if key in asked and fits(asked[key].method, each)}


def fits(method: str, response: Raw) -> bool:
    """Whether a response has all members that a result of the method needs."""
    shape = _SHAPES.get(method)
    return shape is not None and decoded(shape, response) is not None
