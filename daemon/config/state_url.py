"""Parses `state.url`: `sqlite:////absolute/path` or `postgresql://...` with libpq's parameters."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from urllib.parse import parse_qsl, unquote, unquote_plus

import attrs

from daemon.config.listen import MAX_PORT
from daemon.kit.later import pattern
from daemon.kit.wording import quoted

DATABASE = "state.db"

SQLITE_EXAMPLE = "sqlite:////var/lib/mcpd/state.db"
POSTGRESQL_EXAMPLE = "postgresql://USER@HOST/DATABASE"

PASSWORDS = frozenset({"password", "sslpassword", "passfile", "oauth_client_secret"})

_URL = pattern(
    r"(?P<scheme>[\w+]+)://(?:(?P<user>[^:/]*)(?::(?P<password>[^@]*))?@)?"
    r"(?P<host>\[[^/?]+\]|[^/:?]*)(?::(?P<port>[^/?]*))?(?:/(?P<path>[^?]*))?(?:\?(?P<query>.*))?",
    re.DOTALL,
)
"""Matches a database URL. A password may hold any character except @."""

_RESERVED = pattern(r"[/?#]")
_HOST_AND_PORT = pattern(r"(?P<host>/.*|[^:]*)(?::(?P<port>\d+))?")
"""Matches one item of libpq's `host` list, as SQLAlchemy writes it."""


class StateUrlError(ValueError):
    """The URL cannot be used; the text gives the remedy, and never repeats a password."""


@attrs.frozen(kw_only=True)
class StateUrl:
    """A parsed `state.url`."""

    where: str
    """The path, or host and database, for messages; without the user, which may be a token."""
    path: Path | None = None
    parameters: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)

    @property
    def shared(self) -> bool:
        """Whether several daemons can share the database."""
        return self.path is None


def problem(url: str) -> str:
    """The fault of a URL, without quoting the URL; empty if it is valid."""
    try:
        parse(url)
    except StateUrlError as error:
        return str(error)
    return ""


def resolve(url: str | None, state_dir: Path) -> StateUrl:
    """Parse the configured URL; without one, use the default file. Raises StateUrlError."""
    return of_file((state_dir / DATABASE).absolute()) if url is None else parse(url)


def of_file(path: Path) -> StateUrl:
    """The state URL of an SQLite file, whose path may hold any bytes."""
    # A path that is not UTF-8 is shown as closely as UTF-8 allows.
    return StateUrl(path=path, where=os.fsencode(path).decode(errors="replace"))


def parse(url: str) -> StateUrl:
    """Parse a URL, without checking that the database exists. Raises StateUrlError."""
    found = _URL.fullmatch(url)
    if found is None:
        raise StateUrlError(f"this is not a url: write {SQLITE_EXAMPLE} or {POSTGRESQL_EXAMPLE}")
    backend, _, driver = found["scheme"].partition("+")
    if backend == "sqlite":
        return _file(found, driver)
    if backend == "postgresql":
        return _server(found, driver)
    places = f"{SQLITE_EXAMPLE} or {POSTGRESQL_EXAMPLE}"
    raise StateUrlError(f"mcpd cannot store its state in {quoted(backend)}: write {places}")


def passwords(url: str) -> Iterator[str]:
    """A URL's secret parts in each spelling; the whole URL if it cannot be parsed."""
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
        raise StateUrlError("mcpd accepts no parameters in an sqlite url: remove the ? and the rest")
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
        why = f"its port is not a number up to {MAX_PORT}: write {POSTGRESQL_EXAMPLE}, or HOST:PORT for HOST"
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
