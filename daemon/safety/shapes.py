"""How secrets are recognised: credentials by their shape, known secrets by every way they may be written.

A shape (`credentials`, `tokens`) finds what a server prints of its own accord and no configuration names. The
spellings of a known secret (`all_spellings`) are the plain text, its form encoding and its base64.
"""

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
    "mcpd_",
)

_PREFIXED = re.compile(
    r"(?<![A-Za-z0-9])()(?:(?:gh[pousr]_|github_pat_|glpat-|npm_|hf_)[\w-]{16,}"
    r"|xox[a-z]-[\w-]{10,}|A[KS]IA[A-Z0-9]{12,}|AIza[\w-]{30,}|SG\.[\w-]{16,}\.[\w-]{16,}"
    r"|mcpd_[0-9a-f]{64})",
    re.ASCII,
)
# A dash may stand before a token and within one. A search from every dash would look for the end as often as a
# text has dashes, so the first match in a word decides for the whole word.
_KEY = re.compile(r"(?<![\w-])(?>([\w-]*?(?<![A-Za-z0-9]))sk[-_])(?=[\w-]*[0-9])[\w-]{16,}", re.ASCII)
_JWT = re.compile(r"(?<![\w-])(?>([\w-]*?(?<![A-Za-z0-9]))eyJ)[\w-]{8,}+\.[\w-]{4,}(?:\.[\w-]*)?", re.ASCII)
_TOKENS = (
    (_PREFIXES, _PREFIXED),
    (("sk-", "sk_"), _KEY),
    (("eyj",), _JWT),
)
"""Tokens recognised by their prefix: of GitHub, Slack, AWS, Google, OpenAI, our own, JWTs and others."""

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
"""Shapes of credentials whose values we never knew; what follows the first group is the credential. Each comes
with words of which a text must contain one to match: few texts do, so most are skipped cheaply."""

_STATUSES = frozenset({
    "bearer", "basic", "default", "denied", "digest", "disabled", "empty", "enabled", "expired", "failed",
    "false", "incorrect", "invalid", "malformed", "missing", "nil", "no", "none", "not", "null", "off", "ok",
    "on", "optional", "rejected", "required", "revoked", "set", "true", "undefined", "unknown", "unset",
    "valid", "wrong", "yes",
})  # fmt: skip
"""Words that describe a credential rather than being one: without them a reason would say nothing."""

_PROSE = re.compile(r"[A-Za-z]?[a-z]{0,18}(?:[_-][a-z]{1,18}){0,3}|[A-Z]{1,18}")
"""An ordinary word, as may follow a colon: `invalid token: signature mismatch`."""


def credentials(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of everything that looks like a credential."""
    lower = text.lower()
    for words, shape in _SHAPES:
        if any(word in lower for word in words):
            yield from (
                (found.end(1), found.end())
                for found in shape.finditer(text)
                if _may_be_value(found.groupdict())
            )


def tokens(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of every token that its prefix gives away."""
    for _, shape in _TOKENS:
        yield from ((found.end(1), found.end()) for found in shape.finditer(text))


def _may_be_value(parts: dict[str, str | None]) -> bool:
    """Whether what follows the name of a credential is its value rather than a description of it."""
    value = parts.get("value")
    if value is None:
        return True
    word = value.rstrip(".:)!?]>")
    if word.lower() in _STATUSES:
        return False
    given = parts["sign"] == "=" or parts["quote"] or parts["scheme"]
    return bool(given) or not _PROSE.fullmatch(word)


SHORTEST = 6
"""Fewest characters of a secret, and of a spelling of one: shorter texts such as `true` or `8080` are part of
ordinary words, and hiding them would take more from every log than it protects."""

MAX_NESTED = 100
"""Most strings taken from a secret that is JSON: credentials files have a dozen."""


def all_spellings(secrets: Iterable[str]) -> frozenset[str]:
    """Every way in which these secrets may be written without an escape, including the secrets themselves."""
    return frozenset(each for secret in secrets for each in _spellings(secret))


def _spellings(secret: str) -> Iterator[str]:
    """The ways to write one secret without an escape."""
    yield secret
    if len(secret) >= SHORTEST:
        yield from (each for each in _encoded(secret) if len(each) >= SHORTEST)


def nested(secret: str) -> list[tuple[str, str]]:
    """The strings in a secret that is JSON, such as a credentials file in a variable, each with its key."""
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
    """A text as it is, form-encoded, and within base64."""
    yield text
    yield text.replace(" ", "+")
    raw = text.encode(errors="surrogatepass")
    for before in range(3):
        for encode in (b64encode, urlsafe_b64encode):
            yield _within_base64(encode(bytes(before) + raw).decode(), before, len(raw))


def _within_base64(encoded: str, before: int, length: int) -> str:
    """The base64 digits that encode a text alone, whatever precedes it in what was encoded.

    Args:
        encoded: base64 of `before` other bytes and the text.
        before: number of other bytes, at most two.
        length: length of the text in bytes.
    """
    first, last = -(-8 * before // 6), 8 * (before + length) // 6
    return encoded[first:last]
