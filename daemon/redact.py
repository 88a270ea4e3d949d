"""Keeping secrets out of what people and logs are shown."""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HIDDEN = "[redacted]"

SHORTEST = 6
"""Characters of a part or a spelling of a secret: what is shorter stands in ordinary words, too."""

MAX_NESTED = 100
"""Strings that are taken out of a secret that is JSON: credentials files have a dozen."""

_PATTERNS = (
    re.compile(r"(?i)\b((?:bearer|basic|token)\s+)[A-Za-z0-9+/=._~-]{8,}"),
    re.compile(
        r"(?i)((?:api[_-]?key|token|password|passwd|secret|authorization)[\"']?\s*[=:]\s*[\"']?)"
        r"(?!bearer\b|basic\b)[^\s\"',;&]+"
    ),
    re.compile(r"(://)[^/\s@:]+:[^/\s@]+(?=@)"),
)
"""Shapes of credentials that a server may print of its own accord: we never knew their values."""


class Redactor:
    """Replaces known secrets wherever they stand, in the usual encodings, and what looks like one."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """Take the values that must never be shown; more can be learned."""
        self._secrets: frozenset[str] = frozenset()
        self._spelt: tuple[str, ...] = ()
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """These must not be shown either from now on; those known before stay: servers may still print them.

        May be called in any thread.
        """
        self._secrets |= {secret for secret in secrets if secret}
        spelt = {each for secret in self._secrets for each in _spellings(secret)}
        # Longer ones first, so that none leaves a rest.
        self._spelt = tuple(sorted(spelt, key=len, reverse=True))

    def __call__(self, text: str) -> str:
        """The text without secrets."""
        # Looking for each is cheaper than one pattern of all of them: nearly every text has none.
        found = [spelt for spelt in self._spelt if spelt in text]
        if found:
            text = re.sub("|".join(map(re.escape, found)), HIDDEN, text)
        for pattern in _PATTERNS:
            text = pattern.sub(rf"\g<1>{HIDDEN}", text)
        return text


def _spellings(secret: str) -> Iterator[str]:
    """A secret and what is within it, each as it may be written."""
    yield secret
    for part in (secret, *_nested(secret)):
        if len(part) >= SHORTEST:
            yield from (each for each in _encoded(part) if len(each) >= SHORTEST)


def _nested(secret: str) -> list[str]:
    """The strings in a secret that is JSON, such as a credentials file in a variable."""
    if not secret.lstrip().startswith(("{", "[")):
        return []
    try:
        waiting: list[object] = [json.loads(secret)]
    except (ValueError, RecursionError):
        return []
    found: list[str] = []
    while waiting and len(found) < MAX_NESTED:
        match waiting.pop():
            case str() as text:
                found.append(text)
            case list() as items:
                waiting += items
            case dict() as members:
                waiting += members.values()
    return found


def _encoded(text: str) -> Iterator[str]:
    """A text as it stands in urls, in JSON, in reprs and within base64."""
    yield text
    for quoted in (quote(text, safe=""), quote(text), quote_plus(text)):
        yield from (quoted, re.sub("%..", lambda found: found[0].lower(), quoted))
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield repr(text)[1:-1]
    raw = text.encode(errors="surrogatepass")
    for before in range(3):
        for encode in (b64encode, urlsafe_b64encode):
            yield _within_base64(encode(bytes(before) + raw).decode(), before, len(raw))


def _within_base64(encoded: str, before: int, length: int) -> str:
    """The digits that stand for a text alone, wherever it begins in what was encoded.

    Args:
        encoded: base64 of so many bytes of something else and the text.
        before: bytes of something else, up to two.
        length: bytes of the text.
    """
    first, last = -(-8 * before // 6), 8 * (before + length) // 6
    return encoded[first:last]
