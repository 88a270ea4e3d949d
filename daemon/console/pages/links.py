"""Addresses of the console's pages: names of servers, tools and sessions, percent-encoded (RFC 3986, 2.1)."""

from __future__ import annotations

from urllib.parse import quote, urlencode


def server_page(server: str) -> str:
    """The address of a server's page, below `/ui`."""
    return f"/servers/{quote(server, safe='')}"


def tool_page(server: str, tool: str) -> str:
    """The address of a tool's page, below `/ui`."""
    return f"/tools/{quote(server, safe='')}/{quote(tool, safe='')}"


def session_page(session: str) -> str:
    """The address of a session's page, below `/ui`; `session` is a key, or `#` and a connection's number."""
    return f"/sessions/{quote(session, safe='')}"


def with_query(address: str, **query: str | int) -> str:
    """An address with the values of a query that are not empty."""
    words = urlencode({name: value for name, value in query.items() if value}, quote_via=quote)
    return f"{address}?{words}" if words else address


def element_id(kind: str, *names: str) -> str:
    """The id of an element about something with these names: no blanks, and unlike any other's."""
    return "-".join([kind, *(quote(name, safe="") for name in names)])
