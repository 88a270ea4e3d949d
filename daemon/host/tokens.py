"""The access tokens that mcpd makes, as digests in a file of its state directory. Blocks.

A server can write that file as well, so the file alone lets nobody in (`clients.doors.http.valid_tokens`).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import attrs
import msgspec

from daemon.config.listen import ConsoleRole
from daemon.errors import McpdError
from daemon.host import private_files
from daemon.host.sockets import private_directory

FILE = "tokens.json"

PREFIX = "mcpd_"
"""The prefix of each value, by which scanners for secrets find it (`safety.redact`)."""

VALUE_BYTES = 32
"""Random bytes of a value: nobody can guess 256 bits."""

MAX_TOKENS = 256
"""Most named tokens: each request is compared with all of them, at 0.1 µs each."""

MAX_FILE = 1 << 20
"""Most bytes of the file: ten times those of `MAX_TOKENS` tokens with many profiles."""


def confirming(names: Iterable[str]) -> str:
    """The commands that confirm tokens of an earlier daemon; an empty name stands for the default token."""
    return "; ".join(f"`mcpd token confirm {name or '--default'}`" for name in names)


class TokenTrouble(McpdError):
    """The file of tokens cannot be used; the text gives the reason and the remedy."""


class KeptToken(msgspec.Struct, frozen=True, rename="camel"):
    """A token as it is stored."""

    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    """The digest of the token's value, in hexadecimal."""
    since: float
    profiles: tuple[str, ...] | None = None
    """The profiles that the token may use; None for all."""
    console: ConsoleRole | None = None
    workspaces: tuple[str, ...] = ()
    """Globs for the directories that its clients may name as workspaces; an unnamed token allows any."""


class Kept(msgspec.Struct, frozen=True, rename="camel"):
    """The content of the file."""

    default: KeptToken | None = None
    """The token without a name; None until it is made."""
    tokens: dict[str, KeptToken] = {}


class _DefaultBefore(msgspec.Struct):
    value: str
    since: float


class _KeptBefore(msgspec.Struct):
    default: _DefaultBefore
    tokens: dict[str, KeptToken] = {}


def digest(value: str) -> bytes:
    """The digest by which a token is recognised."""
    # What a header cannot carry is no token, and must not be an error either.
    return hashlib.sha256(value.encode(errors="surrogatepass")).digest()


@attrs.frozen
class TokenFile:
    """The file of tokens."""

    directory: Path

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self.directory / FILE

    def read(self) -> Kept:
        """The tokens; empty without a file. Raises `TokenTrouble`: unreadable, or others can change it."""
        try:
            content = private_files.content(self.path, MAX_FILE + 1, 0o022, 0)
        except OSError as error:
            raise TokenTrouble(f"{self.path} cannot be read: {error.strerror}") from None
        if content is None:
            return Kept()
        if len(content) > MAX_FILE:
            raise TokenTrouble(f"{self.path} is larger than {MAX_FILE >> 20} MiB: this is not a token file")
        try:
            return decoded(content)
        except ValueError:
            # The decoder's text may quote what stands there.
            raise TokenTrouble(
                f"{self.path} is damaged: restore the file, or remove it together with every token made here"
            ) from None

    def write(self, kept: Kept) -> None:
        """Replace the file. Raises `TokenTrouble`: it cannot be written, or would be too large to read."""
        content = msgspec.json.format(encoded(kept)) + b"\n"
        if len(content) > MAX_FILE:
            raise TokenTrouble(
                f"{self.path} would be over {MAX_FILE >> 20} MiB: revoke tokens, or name fewer workspaces"
            )
        try:
            private_directory(self.directory)
            private_files.replace(self.path, content)
        except OSError as error:
            raise TokenTrouble(f"{error.filename or self.path} cannot be written: {error.strerror}") from None


def encoded(kept: Kept) -> bytes:
    """Encode the tokens as JSON."""
    return msgspec.json.encode(kept)


def decoded(content: bytes) -> Kept:
    """Decode tokens from JSON; an old file's value becomes a digest. Raises `ValueError` if invalid."""
    try:
        return msgspec.json.decode(content, type=Kept)
    except msgspec.ValidationError:
        before = msgspec.json.decode(content, type=_KeptBefore)
        default = KeptToken(sha256=digest(before.default.value).hex(), since=before.default.since)
        return Kept(default=default, tokens=before.tokens)


def new_value() -> str:
    """A random value that nobody can guess."""
    return PREFIX + secrets.token_hex(VALUE_BYTES)
