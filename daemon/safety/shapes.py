"""Recognises secrets: unknown credentials by shape, known secrets in every spelling."""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NO_WORD = "(?=[a-z+/=._~-]*(?:[0-9]|(?-i:[a-z][A-Z])))"
_PREFIXES = (
    "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "akia", "asia", "aiza", "npm_",
    "hf_", "sg.", "mcpd_",
)  # fmt: skip

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
_TOKENS = ((_PREFIXES, _PREFIXED), (("sk-", "sk_"), _KEY), (("eyj",), _JWT))
"""Prefixes of GitHub, Slack, AWS, Google, OpenAI, mcpd, JWTs and others."""

_SHAPES = (
    (
        ("bearer", "basic", "token"),
        re.compile(rf"(?i)\b((?:bearer|basic|token)\s+){_NO_WORD}[a-z0-9+/=._~-]{{8,}}"),
    ),
    (
        ("key", "token", "passw", "secret", "authorization"),
        re.compile(
            r"(?i)((?P<name>api[_ -]?key|token|password|passwd|secret|authorization)[\"']?\s*(?P<sign>[=:])\s*"
            r"(?P<quote>[\"'])?(?P<scheme>(?:bearer|basic|token)[ \t]+)?)(?!bearer\b|basic\b|token\s|\$\{)"
            r"(?P<value>(?(quote)[^\"'\n]{1,200}(?=(?P=quote))|(?!))|[^\s\"',;&]+)"
        ),
    ),
    (("://",), re.compile(r"(://)[^/\s@:]+:[^/\s@]+(?=@)")),
    *_TOKENS,
)
"""Patterns of credentials, which follow the first group, each with words that a match must contain: a cheap
filter."""

_STATUSES = frozenset({
    "absent", "accepted", "are", "bad", "basic", "bearer", "blocked", "cannot", "changed", "default",
    "denied", "deprecated", "digest", "disabled", "empty", "enabled", "exceeded", "expected", "expired",
    "failed", "false", "forbidden", "found", "given", "has", "ignored", "inactive", "incorrect",
    "insufficient", "invalid", "is", "locked", "malformed", "mismatch", "missing", "must", "needs", "nil",
    "no", "none", "not", "null", "off", "ok", "on", "optional", "present", "provided", "refreshed",
    "rejected", "required", "revoked", "rotated", "set", "should", "stale", "true", "unauthorized",
    "unavailable", "undefined", "unexpected", "unknown", "unreadable", "unset", "unsupported", "unverified",
    "used", "valid", "verified", "was", "wrong", "yes",
})  # fmt: skip
"""Words about a credential: without them a reason would say nothing."""

_NOUNS = frozenset({
    "a", "access", "an", "api", "argument", "auth", "authentication", "authorization", "be", "been",
    "client", "credential", "credentials", "field", "for", "grant", "header", "id", "in", "input", "key",
    "length", "of", "or", "parameter", "password", "permission", "permissions", "request", "scheme",
    "scope", "scopes", "secret", "server", "session", "signature", "string", "the", "this", "to", "token",
    "type", "user", "value", "variable",
})  # fmt: skip
"""Words next to those, as in `insufficient_scope`; alone they may be a secret."""

_PROSE = re.compile(r"[A-Za-z]?[a-z]{0,18}(?:[_-][a-z]{1,18}){0,3}|[A-Z]{1,18}")
"""A word after a colon: `invalid token: signature mismatch`."""

_PLACEHOLDER = re.compile(
    r"[*.\u2026\u2022]+|[^\w\s]{1,2}|<[A-Za-z]+(?:[ _-][A-Za-z]+)*>|\$[A-Z]+(?:_[A-Z]+)+"
    r"|(?i:your(?:[ _-][a-z]+)+)"
)
"""`****`, `<required>`, `$GITHUB_TOKEN`, `YOUR_KEY`, a parser's `}`."""

_NUMBER = re.compile(r"[0-9]{1,3}")
"""A count or HTTP status; a password may be as short."""

_FILE = re.compile(r"(?:/[a-z][a-z._-]{0,40}){2,8}")
"""A credential's file; a base64 token has digits or capitals."""

LONGEST_NAME = 64
"""Characters of a value that may be another credential's name: bounds the repeated search."""

_LAST = re.compile(r"[^\S\n]*(?:\n|\Z)")

_SEPARATORS = re.compile(r"[\s_-]+")


def credentials(text: str) -> Iterator[tuple[int, int]]:
    """Yield the span of everything that looks like a credential."""
    lower = text.lower()
    for words, shape in _SHAPES:
        if any(word in lower for word in words):
            yield from ((found.end(1), found.end()) for found in _all(shape, text) if _may_be_value(found))


def _all(shape: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Every match, including `authorization: bearer token: hunter2`."""
    at = 0
    while (found := shape.search(text, at)) is not None:
        yield found
        first, at = found.end(1), found.end()
        if "value" in shape.groupindex and at - first <= LONGEST_NAME:
            at = first


def tokens(text: str) -> Iterator[tuple[int, int]]:
    """Yield the span of every token with a known prefix."""
    for _, shape in _TOKENS:
        yield from ((found.end(1), found.end()) for found in shape.finditer(text))


def _may_be_value(found: re.Match[str]) -> bool:
    parts = found.groupdict()
    if (value := parts.get("value")) is None:
        return True
    word = value.rstrip(".,:)!?]>").lstrip("<([")
    if _PLACEHOLDER.fullmatch(value) or _describes(word, after_scheme=bool(parts["scheme"])):
        return False
    name = parts["name"].lower()
    if _NUMBER.fullmatch(word):
        return name.startswith(("passw", "secret"))
    if parts["sign"] == "=" or parts["quote"] or parts["scheme"]:
        return True
    if _PROSE.fullmatch(word):
        # Any word may be a password, but an explanation goes on: `password: hash mismatch`.
        return (
            not name.startswith(("token", "auth"))
            and not found.string[found.end() :].partition("\n")[0].strip()
        )
    return not _FILE.fullmatch(word)


def _describes(said: str, *, after_scheme: bool) -> bool:
    words = _SEPARATORS.split(said.lower())
    known = all(word in _STATUSES or word in _NOUNS for word in words)
    return known and (after_scheme or any(word in _STATUSES for word in words))


SHORTEST = 6
"""Characters of a secret or spelling: shorter ones, `true` or `8080`, are part of ordinary words."""

MAX_NESTED = 100
"""Strings in a JSON secret: credentials files have a dozen."""


def all_spellings(secrets: Iterable[str]) -> frozenset[str]:
    """Every spelling of secrets without escapes."""
    return frozenset(each for secret in secrets for each in _spellings(secret))


def _spellings(secret: str) -> Iterator[str]:
    yield secret
    if len(secret) >= SHORTEST:
        yield from (each for each in _encoded(secret) if len(each) >= SHORTEST)


def nested(secret: str) -> list[tuple[str, str]]:
    """Keys and strings in a secret that is JSON, such as a credentials file."""
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
    yield text
    yield text.replace(" ", "+")
    raw = text.encode(errors="surrogatepass")
    for before in range(3):
        for encode in (b64encode, urlsafe_b64encode):
            yield _within_base64(encode(bytes(before) + raw).decode(), before, len(raw))


def _within_base64(encoded: str, before: int, length: int) -> str:
    """The base64 digits that depend on a text alone; `before` other bytes (at most two) precede it."""
    first, last = -(-8 * before // 6), 8 * (before + length) // 6
    return encoded[first:last]
