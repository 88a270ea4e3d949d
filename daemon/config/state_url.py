"""What a state URL (`state.url`) says: where the state is kept. Nothing else takes such a URL apart.

`sqlite:////absolute/path`, or `postgresql://USER:PASSWORD@HOST:PORT/DATABASE?PARAMETER=VALUE` with the
parameters of libpq (PostgreSQL's manual, "Parameter Key Words"). Nothing is looked at but the URL itself.
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

from daemon.config.jsonc import below
from daemon.config.model import MAX_PORT
from daemon.errors import Fault
from daemon.kit.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from daemon.config.model import State

DATABASE = "state.db"
"""The file in the state directory, where the configuration names no other place."""

SQLITE_EXAMPLE = "sqlite:////var/lib/mcpd/state.db"
POSTGRESQL_EXAMPLE = "postgresql://USER@HOST/DATABASE"

PASSWORDS = frozenset({"password", "sslpassword", "passfile", "oauth_client_secret"})
"""Parameters whose values nobody may see."""

_URL = re.compile(
    r"(?P<scheme>[\w+]+)://(?:(?P<user>[^:/]*)(?::(?P<password>[^@]*))?@)?"
    r"(?P<host>\[[^/?]+\]|[^/:?]*)(?::(?P<port>[^/?]*))?(?:/(?P<path>[^?]*))?(?:\?(?P<query>.*))?",
    re.DOTALL,
)
"""A password may hold anything but an @."""

_RESERVED = re.compile(r"[/?#]")
"""What a user or a password must spell in percent: other readers of the url would see it end there."""


class StateUrlError(ValueError):
    """A URL that no store can use. The text says what to write, and repeats no password."""


@attrs.frozen(kw_only=True)
class StateUrl:
    """Where one daemon keeps its state."""

    where: str
    """For people: a path, or a host and a database. Users are left out, they can be tokens."""
    path: Path | None = None
    """The file of SQLite; None where it is a PostgreSQL server's."""
    parameters: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """What libpq reaches the server with, by key word."""
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)
    """Passwords, in every spelling in which they may turn up."""

    @property
    def shared(self) -> bool:
        """Whether other daemons may keep theirs there, too."""
        return self.path is None


def state_faults(state: State, trail: str) -> Iterator[Fault]:
    """What is wrong with `state`; no message repeats the url, which may hold a password."""
    try:
        if state.url is not None:
            parse(state.url)
    except StateUrlError as error:
        yield Fault(path=below(trail, "url"), message=str(error))


def resolve(url: str | None, state_dir: Path) -> StateUrl:
    """Where the configuration says, or in the state directory if it says nothing.

    Raises:
        StateUrlError: the URL cannot work.
    """
    return of_file((state_dir / DATABASE).absolute()) if url is None else parse(url)


def of_file(path: Path) -> StateUrl:
    """The place that is this file, whatever characters its path has."""
    # For people, and in JSON: a name of other bytes than UTF-8 is shown as nearly as that goes.
    return StateUrl(path=path, where=os.fsencode(path).decode(errors="replace"))


def parse(url: str) -> StateUrl:
    """A URL that can work, as far as one can tell without looking.

    Raises:
        StateUrlError: it cannot.
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
    """What nobody may see of a URL, in every spelling; of one that cannot be read, all of it."""
    found = _URL.fullmatch(url)
    if found is None:
        yield url
        return
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
    if "@" in found["host"] or _RESERVED.search(f"{found['user'] or ''}{found['password'] or ''}"):
        raise StateUrlError("write @, / ? and # in its user and password as %40, %2F, %3F and %23")
    port = found["port"]
    if port is not None and not (port.isascii() and port.isdecimal() and 0 < int(port) <= MAX_PORT):
        why = f"its port is no number up to {MAX_PORT}: write {POSTGRESQL_EXAMPLE}, or HOST:PORT for the host"
        raise StateUrlError(why)
    given = {"host": found["host"].strip("[]"), "port": port, "dbname": found["path"]}
    given |= {"user": found["user"], "password": found["password"]}
    # Of several values for one parameter, hosts above all, libpq reads a list with commas.
    asked = sorted(parse_qsl(found["query"] or ""), key=itemgetter(0))
    query = {name: ",".join(value for _, value in pairs) for name, pairs in groupby(asked, itemgetter(0))}
    host = found["host"] or query.get("host", "localhost").partition(",")[0]
    return StateUrl(
        where=f"postgresql://{host}{f':{port}' if port else ''}/{unquote(found['path'] or '')}",
        parameters={name: unquote(value) for name, value in given.items() if value} | query,
        secrets=tuple(passwords(found[0])),
    )
