"""Results that ask a client for input instead of answering it, as MCP 2026-07-28 has them.

Such a result names requests, each under a key, and a state. The client sends its own request again with an
answer under each key and with the state as it was (MCP 2026-07-28, Multi Round-Trip Requests).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import attrs
import msgspec
import trio
from msgspec import UNSET, Raw, Struct, UnsetType

from daemon.errors import UpstreamUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from daemon.surfaces.surface import Forward
    from daemon.wire.envelope import Buffer
    from daemon.wire.requests import PeerRequest


PREFIX = "mcpd.parked."
"""How our states begin, and no server's: those of the SDKs begin with a version or are base64."""

STATE_BYTES = 32
"""Random bytes of a state: 256 bits cannot be guessed."""

TTL = 600.0
"""Seconds that a client has for its answers: as long as a call may take in all unless configured otherwise
(`timeouts.callMax`), and as the SDK of MCP has it."""

CHECK_SECONDS = 1.0
"""Seconds between looks for what has expired, while there are any states."""

MAX_STATES = 1024
"""Calls of all clients that wait for input: as many as there may be clients (`limits.connections`)."""

MAX_OF_CLIENT = 64
"""Those of one client; over HTTP all that show the same token and name no session are one."""

MAX_OF_SERVER = 32
"""Those of one server: half of the calls that it may have in flight unless configured otherwise, since each
keeps its place there."""

C = TypeVar("C")


MAX_HELD_BYTES = 64 * 1024 * 1024
"""Bytes of answers that came while their calls waited: four of the largest that a server may send."""


@attrs.define(eq=False)
class WaitingCall(Generic[C]):
    """A call that waits for its client to bring its state back."""

    owner: bytes = attrs.field(repr=False)
    """A digest of who may bring the state, and with what request."""
    client: Hashable
    """Whose call it is, as far as anything tells clients apart."""
    resume: Callable[[C, Mapping[str, Raw]], bool] = attrs.field(repr=False)
    """Goes on with the client's new call and the responses that it brings; returns whether that is all."""
    give_up: Callable[[str], None] = attrs.field(repr=False)
    """Ends it: its client will not come back, for this reason."""
    server: str | None = None
    """The server that waits; None if mcpd itself does."""
    held: int = 0
    """The bytes that are kept for it, those of an answer that comes meanwhile included."""
    parked: C | None = None
    """The call, if it has no answer yet and its server works on it."""
    until: float = attrs.field(default=0.0, init=False)
    """When its state expires, in seconds on trio's clock."""


class RequestStates:
    """All states that were given out and are still good."""

    def __init__(self) -> None:
        """Begin without any."""
        self._given: dict[bytes, WaitingCall[Any]] = {}
        """By their digests, oldest first."""
        self._any = trio.Event()

    def __len__(self) -> int:
        return len(self._given)

    def give(self, waiting: WaitingCall[Any]) -> str | None:
        """A state for a call; None if too many are waiting already."""
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
        """Everything that waits for a client, oldest first."""
        return list(self._given.values())

    def find(self, state: str, owner: bytes) -> WaitingCall[Any] | None:
        """The call that a state stands for; None if it is not good for that owner, for whatever reason."""
        waiting = self._given.get(_digest(state))
        if waiting is None or trio.current_time() >= waiting.until:
            return None
        return waiting if hmac.compare_digest(waiting.owner, owner) else None

    def use(self, state: str) -> None:
        """Use a state up."""
        del self._given[_digest(state)]

    def may_hold(self, size: int) -> bool:
        """Whether an answer of so many bytes may be kept until its client is back."""
        return sum(each.held for each in self._given.values()) + size <= MAX_HELD_BYTES

    def leave(self, client: Hashable) -> None:
        """End what waits for a client that is gone."""
        for digest, waiting in list(self._given.items()):
            if waiting.client == client:
                self._give_up(digest, "the client is gone")

    async def run(self, flush: Callable[[], None]) -> None:
        """End what has expired, until cancelled; `flush` writes the frames that this queues."""
        while True:
            await self._any.wait()
            self._any = trio.Event()
            while self._given:
                await trio.sleep(CHECK_SECONDS)
                self.expire()
                flush()

    def expire(self) -> None:
        """End what has expired by now."""
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
"""The methods that may be answered with a request for input."""

REQUESTS, RESPONSES, STATE = "inputRequests", "inputResponses", "requestState"

FIRST_PAUSE = 0.05
"""Seconds before a call is sent again to a server that asks for nothing but that; each such round doubles them,
as the SDK of MCP has it."""

LONGEST_PAUSE = 0.25
"""The most seconds of such a pause."""


_SAYS_SO = re.compile(rb'"input_required"')
"""Results without a match, which are nearly all, need not be decoded."""


class InputRequest(Struct):
    """One thing that a server needs of a client."""

    method: str
    params: Raw = Raw(b"{}")


class InputRequired(Struct):
    """What a server needs before it can answer."""

    inputRequests: dict[str, InputRequest] | None = None  # noqa: N815 - the wire's name
    requestState: Raw | UnsetType = UNSET  # noqa: N815 - the wire's name


class _Tagged(Struct):
    resultType: str = ""  # noqa: N815 - the wire's name


class _Elicited(Struct):
    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Raw] | None = None


class _Sampled(Struct):
    role: str
    model: str
    content: dict[str, Raw] | list[dict[str, Raw]]


class _Roots(Struct):
    roots: list[dict[str, Raw]]


_SHAPES: Mapping[str, Callable[[Raw], object]] = {
    "elicitation/create": msgspec.json.Decoder(_Elicited).decode,
    "sampling/createMessage": msgspec.json.Decoder(_Sampled).decode,
    "roots/list": msgspec.json.Decoder(_Roots).decode,
}
_decode_tag = msgspec.json.Decoder(_Tagged).decode
_decode_required = msgspec.json.Decoder(InputRequired).decode
_decode_responses = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_state = msgspec.json.Decoder(str | None).decode
_encode = msgspec.json.encode


class Round(msgspec.Struct, eq=False):
    """Where a call is that its server has answered with a need for input."""

    server: str
    """The server that has asked."""
    head: bytes
    """What is called there (`surfaces.surface.Forward.head`)."""
    label: str
    """The name that the log gives the call."""
    number: int = 0
    """How often it has asked."""
    pause: float = FIRST_PAUSE
    """Seconds before the call is sent again if nothing is asked."""

    def require(self, forward: Forward) -> None:
        """Check that a call still goes where its client's answers belong.

        Raises:
            UpstreamUnavailable: it would go elsewhere.
        """
        if (forward.server, forward.head) != (self.server, self.head):
            text = (
                f"{self.label} is not called by this name any more. The call was not sent again: what its"
                " client has given is for nobody else."
            )
            raise UpstreamUnavailable(text, server=self.server)


def input_required_by(result: Buffer) -> InputRequired | None:
    """What a result asks for; None if it is an answer.

    Raises:
        msgspec.MsgspecError: it asks, but not in the way of MCP.
    """
    raw = memoryview(result)
    if _SAYS_SO.search(raw) is None:
        return None
    try:
        if _decode_tag(raw).resultType != "input_required":
            return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return _decode_required(bytes(raw))


def asking_result(requests: Mapping[str, PeerRequest | InputRequest], state: str) -> bytes:
    """A result that asks a client for these things, under the same keys."""
    asked = b",".join(
        b'%b:{"method":%b,"params":%b}'
        % (_encode(key), _encode(each.method), bytes(each.params) if isinstance(each.params, Raw) else b"{}")
        for key, each in requests.items()
    )
    return b'{"resultType":"input_required","inputRequests":{%b},"requestState":%b}' % (asked, _encode(state))


def state_in(others: Mapping[str, Raw]) -> str | None:
    """The state that a request brings back; None if it brings none that is a text."""
    given = others.get(STATE)
    try:
        return None if given is None else _decode_state(given)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def responses_in(others: Mapping[str, Raw]) -> dict[str, Raw]:
    """What a request answers, by key; without any if it has no answers at all.

    Raises:
        msgspec.MsgspecError: they are not in an object.
    """
    given = others.get(RESPONSES)
    return {} if given is None else _decode_responses(given)


def fits(method: str, response: Raw) -> bool:
    """Whether a response has the members that a result of that method must have."""
    shape = _SHAPES.get(method)
    try:
        return shape is not None and shape(response) is not None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
