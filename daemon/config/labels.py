"""Parses names of servers' instances, `playwright#12` and `filesystem@~/src/app`. Standard library only."""

from __future__ import annotations

import re

OF_INSTANCE = re.compile(r"[#@]")
"""Separates a server's name, which has neither, from an instance's number or directory."""

_BEFORE_URI = re.compile(r"/(?=[A-Za-z][A-Za-z0-9+.-]*:)")


def server_of(name: str) -> str:
    """The server in a server's or an instance's name."""
    return OF_INSTANCE.split(name, maxsplit=1)[0]


def split_off(name: str) -> tuple[str, str]:
    """Split `server/tool`, or `server@directory/tool` at the last slash; ('', name) without a server."""
    server, _, rest = name.partition("/")
    if "@" in server:
        server, _, rest = name.rpartition("/")
    return (server, rest) if server and rest else ("", name)


def split_off_uri(name: str) -> tuple[str, str]:
    """Split `server/uri`; the first part is empty for a URI alone, whose colon precedes its first slash.

    After an instance's directory the URI begins at the first slash that a scheme follows.
    """
    server, _, uri = name.partition("/")
    if ":" in server or not uri:
        return "", name
    if "@" in server and (begin := _BEFORE_URI.search(name)) is not None:
        return name[: begin.start()], name[begin.end() :]
    return server, uri
