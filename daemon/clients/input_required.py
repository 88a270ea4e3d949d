"""Results that ask a client for input instead of answering it, as MCP 2026-07-28 has them.

Such a result names requests, each under a key, and a state. The client sends its own request again with an
answer under each key and with the state as it was (MCP 2026-07-28, Multi Round-Trip Requests).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from daemon.errors import UpstreamUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daemon.surfaces.base import Forward
    from daemon.wire.envelope import Buffer
    from daemon.wire.requests import PeerRequest

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
    params: Raw | UnsetType = UNSET


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
    """What is called there (`surfaces.base.Forward.head`)."""
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
