"""Parses names of server instances: `playwright#12`, `filesystem@~/src/app`. Standard library only."""

from __future__ import annotations

import re

OF_INSTANCE = re.compile(r"[#@]")
"""Matches the character between a server's name and an instance's number or directory."""

LISTING = "mcpd-list-"
"""Begins the name of the directory of an instance that only lists, and soon ends."""

_BEFORE_URI = re.compile(r"/(?=[A-Za-z][A-Za-z0-9+.-]*:)")


def server_of(name: str) -> str:
    """The server in the name of a server or instance."""
    return OF_INSTANCE.split(name, maxsplit=1)[0]


def split_off(name: str) -> tuple[str, str]:
    """Split `server/tool`, or `server@directory/tool` at the last slash; the server may be empty."""
    server, _, rest = name.partition("/")
    if "@" in server:
        server, _, rest = name.rpartition("/")
    return (server, rest) if server and rest else ("", name)


def split_off_uri(name: str) -> tuple[str, str]:
    """Split `server/uri`; a URI alone, whose colon comes before its first slash, has an empty server.

    After an instance's directory, the URI begins at the first slash followed by a scheme.
    """
    server, _, uri = name.partition("/")
    if ":" in server or not uri:
        return "", name
    if "@" in server and (begin := _BEFORE_URI.search(name)) is not None:
        return name[: begin.start()], name[begin.end() :]
    return server, uri
