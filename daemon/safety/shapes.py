"""What looks like a credential in a text although nobody has told us of it."""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NO_WORD = "(?=[a-z+/=._~-]*(?:[0-9]|(?-i:[a-z][A-Z])))"
_PREFIXES = (
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xox",
    "akia",
    "asia",
    "aiza",
    "npm_",
    "hf_",
    "sg.",
)

_PREFIXED = re.compile(
    r"(?<![A-Za-z0-9])()(?:(?:gh[pousr]_|github_pat_|glpat-|npm_|hf_)[\w-]{16,}"
    r"|xox[a-z]-[\w-]{10,}|A[KS]IA[A-Z0-9]{12,}|AIza[\w-]{30,}|SG\.[\w-]{16,}\.[\w-]{16,})",
    re.ASCII,
)
# A dash may stand before a token and within one. Looked for after each dash, its end would be sought as often
# as a text has dashes; so the first beginning in a word decides for all of the word.
_KEY = re.compile(r"(?<![\w-])(?>([\w-]*?(?<![A-Za-z0-9]))sk[-_])(?=[\w-]*[0-9])[\w-]{16,}", re.ASCII)
_JWT = re.compile(r"(?<![\w-])(?>([\w-]*?(?<![A-Za-z0-9]))eyJ)[\w-]{8,}+\.[\w-]{4,}(?:\.[\w-]*)?", re.ASCII)
_TOKENS = (
    (_PREFIXES, _PREFIXED),
    (("sk-", "sk_"), _KEY),
    (("eyj",), _JWT),
)
"""Tokens that say by their first letters whose they are: of GitHub, Slack, AWS, Google, OpenAI, JWTs, ..."""

_SHAPES = (
    (
        ("bearer", "basic", "token"),
        re.compile(rf"(?i)\b((?:bearer|basic|token)\s+){_NO_WORD}[a-z0-9+/=._~-]{{8,}}"),
    ),
    (
        ("key", "token", "passw", "secret", "authorization"),
        re.compile(
            r"(?i)((?:api[_-]?key|token|password|passwd|secret|authorization)[\"']?\s*(?P<sign>[=:])\s*"
            r"(?P<quote>[\"']?)(?P<scheme>(?:bearer|basic|token)\s+)?)(?!bearer\b|basic\b|token\s|\$\{)"
            r"(?P<value>[^\s\"',;&]+)"
        ),
    ),
    (("://",), re.compile(r"(://)[^/\s@:]+:[^/\s@]+(?=@)")),
    *_TOKENS,
)
"""Shapes of credentials that a server may print of its own accord: we never knew their values. What comes after
the first group is one. Each with words of which a text has one if it has the shape: few texts do."""

_STATUSES = frozenset({
    "bearer", "basic", "default", "denied", "digest", "disabled", "empty", "enabled", "expired", "failed",
    "false", "incorrect", "invalid", "malformed", "missing", "nil", "no", "none", "not", "null", "off", "ok",
    "on", "optional", "rejected", "required", "revoked", "set", "true", "undefined", "unknown", "unset",
    "valid", "wrong", "yes",
})  # fmt: skip
"""What is said of a credential in place of its value: without it, a reason tells nothing."""

_PROSE = re.compile(r"[A-Za-z]?[a-z]{0,18}(?:[_-][a-z]{1,18}){0,3}|[A-Z]{1,18}")
"""A word as sentences have it. What comes after a colon may be one: `invalid token: signature mismatch`."""


def credentials(text: str) -> Iterator[tuple[int, int]]:
    """Where something stands that looks like one."""
    lower = text.lower()
    for words, shape in _SHAPES:
        if any(word in lower for word in words):
            yield from (
                (found.end(1), found.end())
                for found in shape.finditer(text)
                if _may_be_value(found.groupdict())
            )


def tokens(text: str) -> Iterator[tuple[int, int]]:
    """Where something stands that says by its first letters that it is a token."""
    for _, shape in _TOKENS:
        yield from ((found.end(1), found.end()) for found in shape.finditer(text))


def _may_be_value(parts: dict[str, str | None]) -> bool:
    """Whether what stands after the name of a credential is its value, not what is said of it."""
    value = parts.get("value")
    if value is None:
        return True
    word = value.rstrip(".:)!?]>")
    if word.lower() in _STATUSES:
        return False
    given = parts["sign"] == "=" or parts["quote"] or parts["scheme"]
    return bool(given) or not _PROSE.fullmatch(word)


SHORTEST = 6
"""Characters of a spelling of a secret: what is shorter stands in ordinary words, too."""

MAX_NESTED = 100
"""Strings that are taken out of a secret that is JSON: credentials files have a dozen."""


def all_spellings(secrets: Iterable[str]) -> frozenset[str]:
    """Every way in which these secrets may be written without an escape, themselves among them."""
    return frozenset(each for secret in secrets for each in _spellings(secret))


def _spellings(secret: str) -> Iterator[str]:
    """A secret as it may be written without an escape."""
    yield secret
    if len(secret) >= SHORTEST:
        yield from (each for each in _encoded(secret) if len(each) >= SHORTEST)


def nested(secret: str) -> list[tuple[str, str]]:
    """The strings in a secret that is JSON, a credentials file in a variable, each with its name there."""
    if not secret.lstrip().startswith(("{", "[")):
        return []
    try:
        waiting: list[tuple[str, object]] = [("", json.loads(secret))]
    except (ValueError, RecursionError):
        return []
    found: list[tuple[str, str]] = []
    while waiting and len(found) < MAX_NESTED:
        match waiting.pop():
            case name, str() as text:
                found.append((name, text))
            case name, list() as items:
                waiting += ((name, item) for item in items)
            case _, dict() as members:
                waiting += members.items()
    return found


def _encoded(text: str) -> Iterator[str]:
    """A text as it stands in anything, in a form that was sent, and within base64."""
    yield text
    yield text.replace(" ", "+")
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
