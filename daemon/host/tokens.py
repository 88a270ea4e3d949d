"""The access tokens that mcpd makes and keeps itself, in a file of its state directory.

The token without a name is kept as it is, because `mcpd token` shows it; of those with a name only digests are.
The file is private, replaced as a whole, and changed under a lock: the daemon and commands may do so at once.
Everything here blocks: call it in a thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import attrs
import msgspec

from daemon.config.listen import ConsoleRole  # noqa: TC001 - msgspec looks the types up
from daemon.errors import McpdError
from daemon.host import private_files
from daemon.host.sockets import private_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILE = "tokens.json"

PREFIX = "mcpd_"
"""What values begin with, so that whoever looks for secrets in files finds them (`safety.shapes`)."""

VALUE_BYTES = 32
"""Random bytes of a value: nobody guesses 256 bits."""

MAX_TOKENS = 256
"""Most tokens with a name: each request is compared with all of them, which takes 0.1 µs each."""

LOCK_SECONDS = 5.0
"""Seconds to wait for somebody else who is changing the file, which takes him milliseconds."""

MAX_FILE = 1 << 20
"""Most bytes of the file: ten times what `MAX_TOKENS` tokens with many profiles take."""


class TokenTrouble(McpdError):
    """The file of tokens cannot be used, or not as asked; the text says why and what to do."""


class KeptToken(msgspec.Struct, frozen=True, rename="camel"):
    """A token with a name, as it is kept."""

    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    """The digest of its value, in hexadecimal."""
    since: float
    """When it was made, in seconds since the epoch."""
    profiles: tuple[str, ...] | None = None
    """The profiles that it may use; None: all."""
    console: ConsoleRole | None = None
    """What it may do in the console; None: nothing."""


class DefaultToken(msgspec.Struct, frozen=True, rename="camel"):
    """The token without a name, as it is kept."""

    value: str
    """What clients show."""
    since: float
    """When it was made, in seconds since the epoch."""

    def __repr__(self) -> str:
        return f"DefaultToken(since={self.since})"


class Kept(msgspec.Struct, frozen=True, rename="camel"):
    """The content of the file."""

    default: DefaultToken | None = None
    """The token without a name, once it is made."""
    tokens: dict[str, KeptToken] = {}
    """Those with one, by name."""


def digest(value: str) -> bytes:
    """The digest by which a token is recognised."""
    # What a header cannot carry is no token, and must not be an error either.
    return hashlib.sha256(value.encode(errors="surrogatepass")).digest()


@attrs.frozen
class TokenFile:
    """The file, and what can be done with it."""

    directory: Path
    """The state directory."""
    patience: float = LOCK_SECONDS
    """Seconds to wait for the lock."""

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self.directory / FILE

    def read(self) -> Kept:
        """What is kept; nothing if there is no file yet.

        Raises:
            TokenTrouble: it cannot be read, or others can change it.
        """
        try:
            with open(self.path, "rb", opener=private_files.safely) as file:
                _refuse_others(os.fstat(file.fileno()), self.path)
                content = file.read(MAX_FILE + 1)
        except FileNotFoundError:
            return Kept()
        except OSError as error:
            raise TokenTrouble(f"{self.path} cannot be read: {error.strerror}") from None
        if len(content) > MAX_FILE:
            raise TokenTrouble(f"{self.path} is larger than {MAX_FILE >> 20} MiB: this is no file of tokens")
        try:
            return msgspec.json.decode(content, type=Kept)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            # The decoder's text may quote what stands there.
            raise TokenTrouble(
                f"{self.path} is damaged: restore it, or remove it and with it every token made here"
            ) from None

    def ensure_default(self, now: float) -> Kept:
        """What is kept, with a token without a name, which is made if there is none.

        Raises:
            TokenTrouble: the file cannot be read or written.
        """
        kept = self.read()
        if kept.default is not None:
            return kept
        return self._change(
            lambda kept: (
                kept
                if kept.default is not None
                else msgspec.structs.replace(kept, default=DefaultToken(value=_new(), since=now))
            )
        )

    def add(
        self,
        name: str,
        profiles: tuple[str, ...] | None,
        now: float,
        console: ConsoleRole | None = None,
    ) -> str:
        """Make a token with a name; returns its value, which is kept nowhere.

        Raises:
            TokenTrouble: there is one of that name, there are too many, or the file cannot be changed.
        """
        value = _new()
        made = KeptToken(sha256=digest(value).hex(), since=now, profiles=profiles, console=console)

        def with_it(kept: Kept) -> Kept:
            if name in kept.tokens:
                raise TokenTrouble(f"there is a token '{name}' already: `mcpd token revoke {name}` ends it")
            if len(kept.tokens) >= MAX_TOKENS:
                raise TokenTrouble(f"there are {MAX_TOKENS} tokens already: revoke those that nobody uses")
            return msgspec.structs.replace(kept, tokens={**kept.tokens, name: made})

        self._change(with_it)
        return value

    def revoke(self, name: str) -> bool:
        """Forget a token with a name; returns whether there was one.

        Raises:
            TokenTrouble: the file cannot be changed.
        """
        if name not in self.read().tokens:
            return False
        self._change(
            lambda kept: msgspec.structs.replace(
                kept, tokens={each: token for each, token in kept.tokens.items() if each != name}
            )
        )
        return True

    def renew_default(self, now: float) -> None:
        """Replace the token without a name by a new one.

        Raises:
            TokenTrouble: the file cannot be changed.
        """
        self._change(lambda kept: msgspec.structs.replace(kept, default=DefaultToken(value=_new(), since=now)))

    def _change(self, change: Callable[[Kept], Kept]) -> Kept:
        try:
            private_directory(self.directory)
            with private_files.locked(self.path, self.patience):
                kept = change(self.read())
                private_files.replace(self.path, msgspec.json.format(msgspec.json.encode(kept)) + b"\n")
                return kept
        except TimeoutError:
            raise TokenTrouble(
                f"another mcpd has been changing {self.path} for {self.patience:g} s: see what it waits for"
            ) from None
        except OSError as error:
            raise TokenTrouble(f"{error.filename or self.path} cannot be written: {error.strerror}") from None


@contextlib.contextmanager
def as_owner(directory: Path) -> Iterator[TokenFile]:
    """The file in a directory; for root, who acts as the directory's owner meanwhile.

    What root wrote the daemon of another user could not read. The file is reached from within the directory,
    whose owner may not come in from above (systemd keeps those of its dynamic users in /var/lib/private).

    Raises:
        OSError: the directory cannot be entered.
    """
    owner = directory.stat() if os.geteuid() == 0 and directory.exists() else None
    if owner is None or owner.st_uid == 0:
        yield TokenFile(directory)
        return
    before = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chdir(directory)
        os.seteuid(owner.st_uid)
        yield TokenFile(Path())
    finally:
        os.seteuid(0)
        os.fchdir(before)
        os.close(before)


def _new() -> str:
    return PREFIX + secrets.token_hex(VALUE_BYTES)


def _refuse_others(found: os.stat_result, path: Path) -> None:
    """Refuse a file by which somebody else could let himself in.

    Raises:
        TokenTrouble: it is not ours alone to write.
    """
    if not stat.S_ISREG(found.st_mode):
        raise TokenTrouble(f"{path} is no file: remove it")
    if found.st_uid not in {os.geteuid(), 0}:
        raise TokenTrouble(
            f"{path} belongs to uid {found.st_uid}, not to us: remove it, or run this as that user"
        )
    if found.st_mode & 0o022:
        raise TokenTrouble(
            f"others can write {path}, and so let themselves in: chmod 600 {path}, and look who did"
        )
