"""State URLs (`state.url`): where the state is kept. Nothing else parses them.

`sqlite:////absolute/path`, or `postgresql://USER:PASSWORD@HOST:PORT/DATABASE?PARAMETER=VALUE` with the
parameters of libpq (PostgreSQL's manual, "Parameter Key Words"). Only the URL itself is examined.
"""

from __future__ import annotations

import os
import re
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, unquote_plus

import attrs

from daemon.config.listen import MAX_PORT
from daemon.kit.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DATABASE = "state.db"
"""The file in the state directory that is used when the configuration names no other place."""

SQLITE_EXAMPLE = "sqlite:////var/lib/mcpd/state.db"
POSTGRESQL_EXAMPLE = "postgresql://USER@HOST/DATABASE"

PASSWORDS = frozenset({"password", "sslpassword", "passfile", "oauth_client_secret"})
"""Parameters of libpq whose values are secret."""

_URL = re.compile(
    r"(?P<scheme>[\w+]+)://(?:(?P<user>[^:/]*)(?::(?P<password>[^@]*))?@)?"
    r"(?P<host>\[[^/?]+\]|[^/:?]*)(?::(?P<port>[^/?]*))?(?:/(?P<path>[^?]*))?(?:\?(?P<query>.*))?",
    re.DOTALL,
)
"""A password may hold anything but an @."""

_RESERVED = re.compile(r"[/?#]")
_HOST_AND_PORT = re.compile(r"(?P<host>/.*|[^:]*)(?::(?P<port>\d+))?")
"""Characters that a user or a password must percent-encode: other parsers of the URL would end it there."""


class StateUrlError(ValueError):
    """A URL that no store can use. The text says what to write, and repeats no password."""


@attrs.frozen(kw_only=True)
class StateUrl:
    """The place where one daemon keeps its state."""

    where: str
    """The place in words: a path, or a host and a database. Users are left out, because they can be tokens."""
    path: Path | None = None
    """The file of SQLite; None for a PostgreSQL server."""
    parameters: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """The parameters of libpq that reach the server, by key word."""
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)
    """Passwords, in every spelling in which they may appear."""

    @property
    def shared(self) -> bool:
        """Whether other daemons may keep their state in the same place."""
        return self.path is None


def problem(url: str) -> str:
    """What is wrong with a URL, without the URL, which may hold a password; empty if nothing is."""
    try:
        parse(url)
    except StateUrlError as error:
        return str(error)
    return ""


def resolve(url: str | None, state_dir: Path) -> StateUrl:
    """The place that the configuration names, or the default file in the state directory.

    Raises:
        StateUrlError: the URL cannot work.
    """
    return of_file((state_dir / DATABASE).absolute()) if url is None else parse(url)


def of_file(path: Path) -> StateUrl:
    """The place for this SQLite file, whatever characters its path has."""
    # A path that is not UTF-8 is shown as closely as UTF-8 allows.
    return StateUrl(path=path, where=os.fsencode(path).decode(errors="replace"))


def parse(url: str) -> StateUrl:
    """Parse a URL, without checking that its place exists.

    Raises:
        StateUrlError: the URL cannot work.
    """
    found = _URL.fullmatch(url)
    if found is None:
        raise StateUrlError(f"this is no url: write {SQLITE_EXAMPLE} or {POSTGRESQL_EXAMPLE}")
    backend, _, driver = found["scheme"].partition("+")
    if backend == "sqlite":
        return _file(found, driver)
    if backend == "postgresql":
        return _server(found, driver)
    places = f"{SQLITE_EXAMPLE} or {POSTGRESQL_EXAMPLE}"
    raise StateUrlError(f"{quoted(backend)} is no place for it: write {places}")


def passwords(url: str) -> Iterator[str]:
    """The secret parts of a URL, in every spelling; the whole URL if it cannot be parsed."""
    found = _URL.fullmatch(url)
    if found is None:
        yield url
        return
    if "@" in (found["path"] or ""):
        # A `/` in the user or the password: what follows it counts as the path.
        yield url
    written = [found["password"] or ""]
    for pair in (found["query"] or "").split("&"):
        name, _, value = pair.partition("=")
        if unquote(name) in PASSWORDS:
            written.append(value)
    for value in filter(None, written):
        yield from (value, unquote(value), unquote_plus(value))


def _file(found: re.Match[str], driver: str) -> StateUrl:
    path = unquote(found["path"] or "", errors="surrogateescape")
    if driver not in {"", "pysqlite"}:
        raise StateUrlError(f"{quoted(driver)} is not used here: write sqlite:// without a driver")
    if found["query"] is not None:
        raise StateUrlError("a url of sqlite has no parameters here: remove what follows the ?")
    if found["host"] or found["user"] is not None or not path.startswith("/"):
        raise StateUrlError(f"the path must be absolute, with four slashes: {SQLITE_EXAMPLE}")
    if not path.strip("/") or path.endswith("/"):
        raise StateUrlError(f"this names no file: write {SQLITE_EXAMPLE}")
    return of_file(Path(path))


def _server(found: re.Match[str], driver: str) -> StateUrl:
    if driver not in {"", "psycopg"}:
        raise StateUrlError(f"{quoted(driver)} is not used here: write postgresql:// without a driver")
    written = f"{found['user'] or ''}{found['password'] or ''}"
    if "@" in f"{found['host']}{found['path'] or ''}" or _RESERVED.search(written):
        raise StateUrlError("write @, / ? and # in its user and password as %40, %2F, %3F and %23")
    port = found["port"]
    if port is not None and not (port.isascii() and port.isdecimal() and 0 < int(port) <= MAX_PORT):
        why = f"its port is no number up to {MAX_PORT}: write {POSTGRESQL_EXAMPLE}, or HOST:PORT for the host"
        raise StateUrlError(why)
    given = {"host": found["host"].strip("[]"), "port": port, "dbname": found["path"]}
    given |= {"user": found["user"], "password": found["password"]}
    # libpq reads several values of one parameter, such as hosts, as a comma-separated list.
    asked = sorted(parse_qsl(found["query"] or ""), key=itemgetter(0))
    query = {name: ",".join(value for _, value in pairs) for name, pairs in groupby(asked, itemgetter(0))}
    hosts = [_HOST_AND_PORT.fullmatch(each) for each in query.get("host", "").split(",")]
    if "port" not in query and any(each and each["port"] for each in hosts) and all(hosts):
        # As SQLAlchemy reads it: `?host=one:5432&host=other:5433`.
        query["host"] = ",".join(each["host"] for each in hosts if each)
        query["port"] = ",".join(each["port"] or "" for each in hosts if each)
    host = found["host"] or query.get("host", "localhost").partition(",")[0]
    return StateUrl(
        where=f"postgresql://{host}{f':{port}' if port else ''}/{unquote(found['path'] or '')}",
        parameters={name: unquote(value) for name, value in given.items() if value} | query,
        secrets=tuple(passwords(found[0])),
    )
