"""Downloads from untrusted addresses: over https, from public addresses, with limits on bytes and seconds.

- The connection goes to the checked address, as a second lookup of the name may differ.
- Only a host that the user has named (`private`) may be private, or be asked over http.
- It uses no proxy of the environment, no .netrc, no cookies and no compression.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import aclosing

import httpx2
import trio

from daemon.config.hosts import HostRules
from daemon.host.sockets import reason
from daemon.protocol import IDENTITY
from daemon.sources.offers import SourceTrouble

SECONDS = 30.0
"""Seconds for a registry's whole answer: some must wake up first."""

CONNECT_SECONDS = 10.0
"""Seconds for a connection to one address."""

MAX_ADDRESSES = 4
"""Most addresses tried of a host: the first of each family, and some in reserve."""

_AGENT = "{name}/{version}".format(**IDENTITY)


def fetch(url: str, *, most: int, private: bool = False, seconds: float = SECONDS, redirects: int = 0) -> bytes:
    """Fetch at most `most` bytes within `seconds`; blocks. Raises SourceTrouble.

    `private`: the user has named the host. `redirects`: how many are followed, to public hosts only.
    """

    async def run() -> bytes:
        with trio.fail_after(seconds):
            return await _fetched(httpx2.URL(url), most, redirects, private=private)

    try:
        return trio.run(run)
    except httpx2.InvalidURL:
        raise SourceTrouble("the address to fetch from is invalid") from None
    except trio.TooSlowError:
        raise SourceTrouble(f"{_place(url)} has not answered in full within {seconds:g} s") from None
    except httpx2.TransportError as error:
        raise SourceTrouble(f"{_place(url)} cannot be read: {reason(error)}") from None


async def _fetched(url: httpx2.URL, most: int, redirects: int, *, private: bool) -> bytes:
    place, host = _place(url), url.raw_host.decode("ascii")
    if url.scheme not in ({"https", "http"} if private else {"https"}) or not host or url.userinfo:
        raise SourceTrouble(f"mcpd does not fetch from {place}: use https://HOST, without a password")
    headers = {"host": url.netloc.decode("ascii"), "accept-encoding": "identity", "user-agent": _AGENT}
    extensions = {"sni_hostname": host, "timeout": {"connect": CONNECT_SECONDS}}
    failure: Exception = SourceTrouble(f"{place} has no address")
    async with httpx2.AsyncHTTPTransport(verify=ssl.create_default_context(), trust_env=False) as transport:
        for address in await _addresses(host, private=private):
            request = httpx2.Request("GET", url.copy_with(host=address), headers=headers, extensions=extensions)
            try:
                response = await transport.handle_async_request(request)
                break
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
        else:
            raise failure
        if not response.has_redirect_location:
            return await _body(response, place, most)
        target = url.join(response.headers["location"])
    if not redirects:
        raise SourceTrouble(f"{place} redirects to {_place(target)}, which is not followed")
    return await _fetched(target, most, redirects - 1, private=False)


def _place(url: str | httpx2.URL) -> str:
    """The origin of an address, as a path or a query may contain a key."""
    url = httpx2.URL(url)
    return f"{url.scheme}://{url.netloc.decode('ascii').rpartition('@')[2]}"


async def _addresses(host: str, *, private: bool) -> list[str]:
    try:
        found = await trio.socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise SourceTrouble(f"{host} cannot be found: {reason(error)}") from None
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    if not private and any(HostRules().missing(host, each) for each in addresses):
        raise SourceTrouble(
            f"{host} resolves to {', '.join(addresses[:4])}: mcpd fetches nothing from private addresses"
        )
    return addresses[:MAX_ADDRESSES]


async def _body(response: httpx2.Response, place: str, most: int) -> bytes:
    status, made = response.status_code, bytearray()
    if status != httpx2.codes.OK:
        raise SourceTrouble(f"{place} answered HTTP {status}")
    if response.headers.get("content-encoding", "identity") != "identity":
        raise SourceTrouble(f"{place} compresses its answer although mcpd asked it not to")
    async with aclosing(response.aiter_raw()) as chunks:
        async for chunk in chunks:
            made += chunk
            if len(made) > most:
                raise SourceTrouble(f"{place} answers with more than {most:,} bytes")
    return bytes(made)
