"""The device flow (RFC 8628): the user types a code on any device while the authorization server is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2
import msgspec
import trio

from daemon.authorization.guarded_http import UnsafeAddress, refuse_unsafe
from daemon.authorization.messages import DeviceCode, NoLogin
from daemon.authorization.token_endpoint import OK, error_code

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

GRANT = "urn:ietf:params:oauth:grant-type:device_code"
"""The grant type (section 3.4)."""

INTERVAL = 5.0
"""Seconds between two questions where none are named, and by which `slow_down` prolongs them (section 3.5)."""

MIN_INTERVAL, MAX_INTERVAL = 1.0, 60.0
"""Seconds between two questions, whatever the authorization server says."""

MAX_CODE = 64
"""Characters of a code that somebody has to type."""


class DeviceAnswer(msgspec.Struct):
    """What the device authorization endpoint answers (section 3.2)."""

    device_code: str
    user_code: str
    verification_uri: str
    expires_in: float
    verification_uri_complete: str | None = None
    interval: float = INTERVAL


async def authorize(
    client: httpx2.AsyncClient,
    endpoint: str,
    fields: Mapping[str, str],
    headers: Mapping[str, str],
    *,
    local: bool,
) -> DeviceAnswer:
    """Begin: a code for the user.

    Args:
        client: sends the request.
        endpoint: the device authorization endpoint.
        fields: the form: who the client is, the scope, the resource.
        headers: who the client is, where that is no field.
        local: whether the MCP server is on loopback.

    Raises:
        NoLogin: there is none.
    """
    response = await client.post(endpoint, data=dict(fields), headers=dict(headers))
    try:
        if response.status_code != OK:
            raise NoLogin(f"the authorization server gives no code for a device (HTTP {response.status_code})")
        answer = msgspec.json.decode(response.content, type=DeviceAnswer)
        for url in filter(None, (answer.verification_uri, answer.verification_uri_complete)):
            refuse_unsafe(httpx2.URL(url), local=local)
    except UnsafeAddress as unsafe:
        raise NoLogin(f"the authorization server names a page that is not safe to open: {unsafe}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, httpx2.InvalidURL):
        raise NoLogin("the authorization server gives no usable code for a device") from None
    if not answer.user_code.isprintable() or not 0 < len(answer.user_code) <= MAX_CODE:
        raise NoLogin("the authorization server gives a code for a device that nobody can type")
    return answer


def shown(answer: DeviceAnswer) -> DeviceCode:
    """What the user is shown."""
    return DeviceCode(answer.verification_uri, answer.user_code, answer.verification_uri_complete)


async def granted(
    client: httpx2.AsyncClient, answer: DeviceAnswer, request: Callable[[], httpx2.Request]
) -> httpx2.Response:
    """Ask until the user has agreed (section 3.5).

    Args:
        client: sends the requests.
        answer: what the device authorization endpoint said.
        request: makes a request for the token.

    Returns:
        What the token endpoint answers in the end, which need not be a token.

    Raises:
        NoLogin: the user has refused, or not answered in time.
    """
    interval = min(max(answer.interval, MIN_INTERVAL), MAX_INTERVAL)
    with trio.move_on_after(max(answer.expires_in, 0.0)):
        while True:
            await trio.sleep(interval)
            try:
                response = await client.send(request())
            except httpx2.TransportError:
                # A connection that fails is a sign to ask less often (section 3.5).
                interval = min(interval + INTERVAL, MAX_INTERVAL)
                continue
            match error_code(response.content):
                case "authorization_pending":
                    continue
                case "slow_down":
                    interval = min(interval + INTERVAL, MAX_INTERVAL)
                case "access_denied":
                    raise NoLogin(
                        "the login was refused at the authorization server: begin again, and agree to it"
                    )
                case "expired_token":
                    break
                case _:
                    return response
    raise NoLogin("nobody has typed the code in time: begin again, and type the new one")
