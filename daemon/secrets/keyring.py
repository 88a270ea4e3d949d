"""Secrets by name: in the desktop's Secret Service where one can be used, else in private files.

A file counts more than the Secret Service: writing there removes the file, so a file is newer, from a time
without it. Everything blocks: call it in a thread.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from daemon.config.jsonc import sound
from daemon.errors import McpdError
from daemon.host import private_files
from daemon.host.paths import secrets_dir
from daemon.kit.later import later
from daemon.kit.wording import quoted

if TYPE_CHECKING:
    from pathlib import Path

    import jeepney
    import secretstorage
    from secretstorage import Collection, Item
else:
    # Most daemons keep secrets and logins in files, and do without this library.
    jeepney, secretstorage = later("jeepney"), later("secretstorage")

T = TypeVar("T")

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")

OURS, SERVICE = {"application": "mcpd", "kind": "secret"}, "the Secret Service"

ANSWER_SECONDS = 10.0
"""Seconds for the Secret Service, which is local and reads a file."""

LOCK_SECONDS = 10.0
"""Seconds for other commands that write a secret, which takes milliseconds."""

MAX_BYTES = 64 * 1024
"""Bytes of a secret: enough for keys with their certificates, as for ${file:PATH}."""


class SecretTrouble(McpdError):
    """A secret cannot be looked up or kept; the text has the reason and the remedy, never the secret."""


class NoSecretService(SecretTrouble):
    """No Secret Service answers in this session."""


def read(name: str, environ: Mapping[str, str]) -> str:
    """The secret of a name. Raises SecretTrouble: there is none, or it cannot be read."""
    with _folder(environ) as folder:
        content = private_files.content(folder / _named(name), MAX_BYTES + 1)
    if content is None:
        content = _in_service(
            None, lambda found: next((each.get_secret() for each in _items(found, name)), None)
        )
    if content is None:
        raise SecretTrouble(f"there is no secret {name} in the keyring: `mcpd secret set {name}` sets it")
    return text_of(content, f"secret {name}")


def write(name: str, value: str, environ: Mapping[str, str]) -> str:
    """Keep a secret, in place of another of the name; returns where. Raises SecretTrouble."""
    content = value.encode(errors="surrogatepass")
    text_of(content, f"the value of {_named(name)}")
    label, attributes = f"mcpd: secret {name}", {**OURS, "secret": name}
    with _folder(environ, writing=True) as folder:
        # Where the service is locked or hangs, the file counts more than what is there.
        with suppress(SecretTrouble):
            if _in_service(None, lambda found: found.create_item(label, attributes, content, replace=True)):
                (folder / name).unlink(missing_ok=True)
                return SERVICE
        private_files.replace(folder / name, content)
        return str(folder / name)


def remove(name: str, environ: Mapping[str, str]) -> bool:
    """Forget a secret; returns whether there was one. Raises SecretTrouble: the service may still have it."""
    with _folder(environ, writing=True) as folder:
        there = os.path.lexists(folder / _named(name))
        (folder / name).unlink(missing_ok=True)
    deleted = _in_service(list[None](), lambda found: [*map(secretstorage.Item.delete, _items(found, name))])
    return there or bool(deleted)


def names(environ: Mapping[str, str]) -> dict[str, str]:
    """The place of each secret, by name. Raises SecretTrouble: some cannot be seen."""
    none = dict[str, str]()
    kept = _in_service(
        none, lambda found: {each.get_attributes().get("secret", ""): SERVICE for each in _items(found)}
    )
    with _folder(environ) as folder:
        kept |= {each.name: str(each) for each in (folder.iterdir() if folder.exists() else ())}
    return {name: kept[name] for name in sorted(kept) if NAME.fullmatch(name)}


def text_of(content: bytes, what: str) -> str:
    """A secret as text; raises SecretTrouble, which calls it `what`."""
    text = content.decode(errors="surrogateescape")  # a strict one's error quotes the bytes
    if not 0 < len(content) <= MAX_BYTES or not sound(text):
        raise SecretTrouble(f"{what} must be text: UTF-8 without a NUL, of 1 byte to {MAX_BYTES >> 10} KiB")
    return text


def _named(name: str) -> str:
    if not NAME.fullmatch(name):
        rule = "take letters, digits, _, . and -, at most 128, a letter or digit first"
        raise SecretTrouble(f"{quoted(name)} cannot be the name of a secret: {rule}")
    return name


@contextmanager
def _folder(environ: Mapping[str, str], *, writing: bool = False) -> Iterator[Path]:
    """The directory of secrets, which may be missing, or is made and locked; a failure is a SecretTrouble."""
    folder = secrets_dir(environ)
    try:
        with ExitStack() as held:
            if writing:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.path.lexists(folder):
                private_files.refuse_open(folder.lstat(), folder, stat.S_ISDIR)
            if writing:  # no secret's name begins with a dot
                held.enter_context(private_files.locked(folder / ".all", LOCK_SECONDS))
            yield folder
    except OSError as error:
        reason = error.strerror or f"another mcpd has been writing there for {LOCK_SECONDS:g} s"
        raise SecretTrouble(f"{error.filename or folder} cannot be used: {reason}") from None


def _in_service(without: T, use: Callable[[Collection], T]) -> T:
    """Use the Secret Service; `without` where there is none. Raises SecretTrouble: it cannot be used."""
    try:
        with collection(SecretTrouble, NoSecretService, "set the secret again, into a file") as found:
            return use(found)
    except (NoSecretService, ImportError):
        return without


def _items(found: Collection, name: str = "") -> Iterator[Item]:
    return found.search_items({**OURS, "secret": name} if name else OURS)


def need_library() -> None:
    """Raise ImportError where the extra `secret-service` is not installed."""
    _ = secretstorage.dbus_init


@contextmanager
def collection(trouble: type[McpdError], missing: type[McpdError], otherwise: str) -> Iterator[Collection]:
    """The default collection, unlocked; raises `missing` without a Secret Service, else `trouble`."""
    try:
        with closing(secretstorage.dbus_init()) as connection:
            # The library has no timeout: a hanging service would block one thread after the other.
            connection.send_and_get_reply = partial(connection.send_and_get_reply, timeout=ANSWER_SECONDS)
            found = secretstorage.get_any_collection(connection)
            if found.is_locked():
                raise trouble(
                    "the Secret Service is locked: log in to the desktop, or unlock its keyring there"
                )
            yield found
    except (secretstorage.SecretStorageException, jeepney.DBusErrorResponse, OSError, RuntimeError) as error:
        there = TimeoutError | secretstorage.LockedException | jeepney.DBusErrorResponse
        kind = trouble if isinstance(error, there) else missing
        raise kind(
            f"the Secret Service cannot be used ({type(error).__name__}): run mcpd within the desktop's"
            f" session, or {otherwise}"
        ) from None
