"""Downloads from untrusted addresses: over https, from public addresses, with limits on bytes and seconds.

- Only a host that the user has named (`private`) may be private, or be asked over http.
- mcpd uses no proxy of the environment, no .netrc and no cookies.
"""

from __future__ import annotations

import math
import ssl
from functools import partial

import httpx2
import trio

from daemon.config.hosts import HostRules
from daemon.host.checked_http import CONNECT_SECONDS, CheckedTransport
from daemon.host.sockets import reason
from daemon.sources.offers import SourceTrouble

SECONDS = 30.0
"""Seconds for a registry's whole answer: some must wake up first."""


def fetch(url: str, *, most: int, private: bool = False, seconds: float = SECONDS, redirects: int = 0) -> bytes:
    """Fetch at most `most` bytes within `seconds`, after at most `redirects` to public hosts; blocks.

    `private`: the user has named the host. Raises SourceTrouble.
    """
    try:
        return trio.run(partial(_fetched, private=private), httpx2.URL(url), most, seconds, redirects)
    except httpx2.InvalidURL:
        raise SourceTrouble("the address to fetch from is invalid") from None
    except trio.TooSlowError:
        raise SourceTrouble(f"{_place(url)} has not answered in full within {seconds:g} s") from None
    except (httpx2.TransportError, httpx2.DecodingError) as error:
        raise SourceTrouble(f"{_place(url)} cannot be read: {reason(error)}") from None


async def _fetched(url: httpx2.URL, most: int, seconds: float, redirects: int, *, private: bool) -> bytes:
    timeout = {"timeout": {"connect": CONNECT_SECONDS}}
    transport = CheckedTransport(
        inner=httpx2.AsyncHTTPTransport(verify=ssl.create_default_context(), trust_env=False),
        check_url=partial(_refuse_unsafe, private=private),
        check_addresses=lambda host, addresses: None if private else _refuse_private(host, addresses),
        most=most,
        seconds=math.inf,
    )
    with trio.fail_after(seconds):
        async with transport:
            response = await transport.handle_async_request(httpx2.Request("GET", url, extensions=timeout))
            if response.status_code == httpx2.codes.OK:
                return await response.aread()
        if not redirects or not response.has_redirect_location:
            raise SourceTrouble(f"{_place(url)} answered HTTP {response.status_code}")
        target = url.join(response.headers["location"])
        return await _fetched(target, most, seconds, redirects - 1, private=False)


def _place(url: str | httpx2.URL) -> str:
    """The origin of an address: a path or a query may contain a key."""
    url = httpx2.URL(url)
    return f"{url.scheme}://{url.netloc.decode('ascii').rpartition('@')[2]}"


def _refuse_unsafe(url: httpx2.URL, *, private: bool) -> None:
    if url.scheme not in ({"https", "http"} if private else {"https"}) or not url.host or url.userinfo:
        raise SourceTrouble(f"mcpd does not fetch from {_place(url)}: use https://HOST, without a password")


def _refuse_private(host: str, addresses: list[str]) -> None:
    if any(HostRules().missing(host, each) for each in addresses):
        raise SourceTrouble(
            f"{host} resolves to {', '.join(addresses[:4])}: mcpd fetches nothing from private addresses"
        )
