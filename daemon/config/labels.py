"""Names of servers' instances, taken apart: `playwright#12`, `filesystem@~/src/app`. Standard library only."""

from __future__ import annotations

import re

OF_INSTANCE = re.compile(r"[#@]")
"""What follows a server's name in that of an instance: before a number or a directory. No server has it."""

_BEFORE_URI = re.compile(r"/(?=[A-Za-z][A-Za-z0-9+.-]*:)")


def server_of(name: str) -> str:
    """The server that a name is of, which may be its own or that of one of its instances."""
    return OF_INSTANCE.split(name, maxsplit=1)[0]


def split_off(name: str) -> tuple[str, str]:
    """The two sides of `server/tool`; the first is empty if the name has no such sides.

    In place of the server an instance may be named. The name of one with a directory has slashes of its own:
    then the last one counts, and the tool has none.
    """
    server, _, rest = name.partition("/")
    if "@" in server:
        server, _, rest = name.rpartition("/")
    return (server, rest) if server and rest else ("", name)


def split_off_uri(name: str) -> tuple[str, str]:
    """The two sides of `server/uri`; the first is empty if it is a URI alone.

    A URI has a colon before its first slash, and the name of a server has none. In place of the server an
    instance may be named: the URI follows the first slash after which something begins as a URI does.
    """
    server, _, uri = name.partition("/")
    if ":" in server or not uri:
        return "", name
    if "@" in server and (begin := _BEFORE_URI.search(name)) is not None:
        return name[: begin.start()], name[begin.end() :]
    return server, uri
