"""Secrets by name, blocking: in the desktop's Secret Service if it can be used, else in private files.

A file overrides the Secret Service: writing to the service removes the file, so a file is newer.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from daemon.config.expand import MAX_FILE, SECRET
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

OURS, SERVICE = {"application": "mcpd", "kind": "secret"}, "the Secret Service"

ANSWER_SECONDS = 10.0
"""Seconds for the Secret Service to answer, which is local and reads a file."""

LOCK_SECONDS = 10.0
"""Seconds to wait for other commands that write a secret, which takes milliseconds."""


class SecretTrouble(McpdError):
    """A secret cannot be read or stored; the text has the reason and the remedy, never the secret."""


def read(name: str, environ: Mapping[str, str]) -> str:
    """The secret with a name. Raises SecretTrouble: there is none, or it cannot be read."""
    with _folder(environ) as folder:
        content = private_files.content(folder / checked(name), MAX_FILE + 1)
    for found in _in_service(lambda item: item.get_secret(), name) if content is None else [content]:
        return text_of(found, f"secret {name}")
    raise SecretTrouble(f"there is no secret {name} in the keyring: `mcpd secret set {name}` sets it")


def write(name: str, value: str, environ: Mapping[str, str]) -> str:
    """Store a secret under a name; returns the place. Raises SecretTrouble."""
    content, wanted = value.encode(errors="surrogatepass"), {**OURS, "secret": checked(name)}
    text_of(content, f"the value of {name}")
    with _folder(environ) as folder:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with private_files.locked(folder / ".all", LOCK_SECONDS):  # no secret's name begins with a dot
            # Where the service is locked or hangs, the file counts more than what is there.
            with suppress(SecretTrouble, ImportError), collection(SecretTrouble, SecretTrouble, "") as service:
                service.create_item(f"mcpd: secret {name}", wanted, content, replace=True)
                (folder / name).unlink(missing_ok=True)
                return SERVICE
            private_files.replace(folder / name, content)
    return str(folder / name)


def remove(name: str, environ: Mapping[str, str]) -> bool:
    """Delete a secret; returns whether it existed. Raises SecretTrouble: the service may still have it."""
    with _folder(environ) as folder:
        there = os.path.lexists(folder / checked(name))
        (folder / name).unlink(missing_ok=True)
    return bool(_in_service(lambda item: item.delete(), name)) or there


def names(environ: Mapping[str, str]) -> dict[str, str]:
    """The place of each secret, by name. Raises SecretTrouble: some cannot be read."""
    kept = dict.fromkeys(_in_service(lambda item: item.get_attributes().get("secret", "")), SERVICE)
    with _folder(environ) as folder:
        kept |= {each.name: str(each) for each in (folder.iterdir() if folder.exists() else ())}
    return {name: kept[name] for name in sorted(kept) if SECRET.fullmatch(name)}


def text_of(content: bytes, what: str) -> str:
    """A secret as text; raises SecretTrouble with `what` as its subject."""
    text = content.decode(errors="surrogateescape")  # a strict one's error quotes the bytes
    if not 0 < len(content) <= MAX_FILE or not sound(text):
        raise SecretTrouble(f"{what} must be text: UTF-8 without a NUL, of 1 byte to {MAX_FILE >> 10} KiB")
    return text


def checked(name: str) -> str:
    """The name of a secret; raises SecretTrouble for any other text."""
    if SECRET.fullmatch(name):
        return name
    rule = "take letters, digits, _, . and -, at most 128, a letter or digit first"
    raise SecretTrouble(f"{quoted(name)} cannot be the name of a secret: {rule}")


@contextmanager
def _folder(environ: Mapping[str, str]) -> Iterator[Path]:
    """The directory of secrets, which may be missing; errors in the block become SecretTrouble."""
    folder = secrets_dir(environ)
    try:
        with suppress(FileNotFoundError):
            private_files.refuse_open(folder.lstat(), folder, stat.S_ISDIR)
        yield folder
    except OSError as error:
        reason = error.strerror or f"another mcpd has been writing there for {LOCK_SECONDS:g} s"
        raise SecretTrouble(f"{error.filename or folder} cannot be used: {reason}") from None


def _in_service(use: Callable[[Item], Any], name: str = "") -> list[Any]:
    """Apply `use` to the secrets in the Secret Service (named `name`, or all). Raises SecretTrouble."""
    try:
        with collection(SecretTrouble, LookupError, "set the secret again, into a file") as service:
            return [use(item) for item in service.search_items({**OURS, "secret": name} if name else OURS)]
    except (LookupError, ImportError):
        return []


def need_library() -> None:
    """Raise ImportError if the extra `secret-service` is not installed."""
    _ = secretstorage.dbus_init


@contextmanager
def collection(trouble: type[McpdError], missing: type[Exception], otherwise: str) -> Iterator[Collection]:
    """The default collection, unlocked; raises `missing` without a Secret Service, else `trouble`."""
    try:
        with closing(secretstorage.dbus_init()) as connection:
            # The library has no timeout: a hanging service would block one thread after the other.
            connection.send_and_get_reply = partial(connection.send_and_get_reply, timeout=ANSWER_SECONDS)
            # No other collection: one of them is forgotten at the logout.
            found = secretstorage.Collection(connection)
            if found.is_locked():
                raise trouble("the Secret Service is locked: log in to the desktop, or unlock its keyring")
            yield found
    except (secretstorage.SecretStorageException, jeepney.DBusErrorResponse, OSError, RuntimeError) as error:
        there = TimeoutError | secretstorage.LockedException | jeepney.DBusErrorResponse
        raise (trouble if isinstance(error, there) else missing)(
            f"the Secret Service cannot be used ({type(error).__name__}): run mcpd within the desktop's"
            f" session, or {otherwise}"
        ) from None
