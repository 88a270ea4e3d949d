"""Removes secrets, in each spelling or by their shape, from texts for people, models, logs and the store."""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

from daemon.kit.later import pattern

_NO_WORD = "(?=[a-z+/=._~-]*(?:[0-9]|(?-i:[a-z][A-Z])))"
_PREFIXES = (
    "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "akia", "asia", "aiza", "npm_",
    "hf_", "sg.", "mcpd_",
)  # fmt: skip

_PREFIXED = pattern(
    r"(?<![A-Za-z0-9])()(?:(?:gh[pousr]_|github_pat_|glpat-|npm_|hf_)[\w-]{16,}"
    r"|xox[a-z]-[\w-]{10,}|A[KS]IA[A-Z0-9]{12,}|AIza[\w-]{30,}|SG\.[\w-]{16,}\.[\w-]{16,}"
    r"|mcpd_[0-9a-f]{64})",
    re.ASCII,
)
# A dash may stand before a token and within one. A search from every dash would look for the end as often as a
# text has dashes, so the first match in a word decides for the whole word.
_KEY = pattern(r"(?<![\w-])(?>([\w-]*?(?<![A-Za-z0-9]))sk[-_])(?=[\w-]*[0-9])[\w-]{16,}", re.ASCII)
_JWT = pattern(r"(?<![\w-])(?>([\w-]*?(?<![A-Za-z0-9]))eyJ)[\w-]{8,}+\.[\w-]{4,}(?:\.[\w-]*)?", re.ASCII)
_TOKENS = ((_PREFIXES, _PREFIXED), (("sk-", "sk_"), _KEY), (("eyj",), _JWT))
"""Prefixes of tokens from GitHub, Slack, AWS, Google, OpenAI, mcpd, JWTs and others, with patterns."""

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
"""Patterns of credentials, each with words that a match must contain, as a quick filter."""

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
"""Words about a credential that stay: without them, a reason would explain nothing."""

_NOUNS = frozenset({
    "a", "access", "an", "api", "argument", "auth", "authentication", "authorization", "be", "been",
    "client", "credential", "credentials", "field", "for", "grant", "header", "id", "in", "input", "key",
    "length", "of", "or", "parameter", "password", "permission", "permissions", "request", "scheme",
    "scope", "scopes", "secret", "server", "session", "signature", "string", "the", "this", "to", "token",
    "type", "user", "value", "variable",
})  # fmt: skip
"""Words that occur next to the words above, as in `insufficient_scope`; alone they may be a secret."""

_PROSE = pattern(r"[A-Za-z]?[a-z]{0,18}(?:[_-][a-z]{1,18}){0,3}|[A-Z]{1,18}")
"""A word after a colon that is an explanation: `invalid token: signature mismatch`."""

PLACEHOLDER = pattern(
    r"[*.\u2026\u2022]+|[^\w\s]{1,2}|<[A-Za-z]+(?:[ _-][A-Za-z]+)*>|\$[A-Z]+(?:_[A-Z]+)+"
    r"|(?i:your(?:[ _-][a-z]+)+)"
)
"""Placeholders: `****`, `<required>`, `$GITHUB_TOKEN`, `YOUR_KEY`, a parser's `}`."""

_NUMBER = pattern(r"[0-9]{1,3}")
"""A count or an HTTP status; a password may be as short."""

_FILE = pattern(r"(?:/[a-z][a-z._-]{0,40}){2,8}")
"""The path of a credential's file; a base64 token has digits or capitals."""

LONGEST_NAME = 64
"""Most characters of a value that may itself name another credential, which bounds the repeated search."""

_SEPARATORS = pattern(r"[\s_-]+")


def credentials(text: str) -> Iterator[tuple[int, int]]:
    """Yield the span of each part of a text that looks like a credential."""
    lower = text.lower()
    for words, shape in _SHAPES:
        if any(word in lower for word in words):
            yield from ((found.end(1), found.end()) for found in _all(shape, text) if _may_be_value(found))


def _all(shape: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Every match, also nested: `authorization: bearer token: hunter2`."""
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
    if PLACEHOLDER.fullmatch(value) or _describes(word, after_scheme=bool(parts["scheme"])):
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
"""Fewest characters of a secret or spelling: shorter ones, `true` or `8080`, are part of ordinary words."""

MAX_NESTED = 100
"""Most strings read in a JSON secret: credentials files have a dozen."""


def all_spellings(secrets: Iterable[str]) -> frozenset[str]:
    """Every spelling of these secrets, except with escapes."""
    return frozenset(each for secret in secrets for each in _spellings(secret))


def _spellings(secret: str) -> Iterator[str]:
    yield secret
    if len(secret) >= SHORTEST:
        yield from (each for each in _encoded(secret) if len(each) >= SHORTEST)


def nested(secret: str) -> list[tuple[str, str]]:
    """The keys and strings in a secret that is JSON, such as a credentials file."""
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
    """The base64 digits that depend on the text alone; `before` other bytes (at most two) precede it."""
    first, last = -(-8 * before // 6), 8 * (before + length) // 6
    return encoded[first:last]


HIDDEN = "[redacted]"

CUT = "… (cut)"

SHOWN = 16 * 1024
"""Most characters to search and show: twice the longest stderr line, some ms; 16 MiB would take seconds."""

REASON = 2000
"""Most characters of a server's failure reason, which every caller receives."""

WHOLE = 16
"""Characters below which definitions lose a secret only as a whole word: a longer one is part of no word."""

LONG_NUMBER = 8
"""Digits from which a number in a definition may be a secret; shorter ones are counts."""

SCHEMA_WORDS = frozenset({
    "$anchor", "$comment", "$defs", "$dynamicAnchor", "$dynamicRef", "$id", "$ref", "$schema", "$vocabulary",
    "_meta", "additionalItems", "additionalProperties", "allOf", "annotations", "anyOf", "array", "boolean",
    "const", "contains", "contentEncoding", "contentMediaType", "contentSchema", "default", "definitions",
    "dependencies", "dependentRequired", "dependentSchemas", "deprecated", "description", "destructiveHint",
    "else", "enum", "examples", "exclusiveMaximum", "exclusiveMinimum", "execution", "format", "icons",
    "idempotentHint", "if", "inputSchema", "integer", "items", "maxContains", "maxItems", "maxLength",
    "maxProperties", "maximum", "minContains", "minItems", "minLength", "minProperties", "minimum",
    "multipleOf", "name", "not", "null", "number", "object", "oneOf", "openWorldHint", "outputSchema",
    "pattern", "patternProperties", "prefixItems", "properties", "propertyNames", "readOnly", "readOnlyHint",
    "required", "string", "taskSupport", "then", "title", "type", "unevaluatedItems", "unevaluatedProperties",
    "uniqueItems", "writeOnly",
})  # fmt: skip
"""JSON Schema's keywords and types, which reveal nothing, and which definitions need."""

MAX_LEVELS = 2
"""Most levels of nested escapes that are resolved: JSON within JSON."""

LONGEST_ESCAPE = 6
r"""Most characters that escape one character, as JSON's `\u00e9`."""

FARTHEST = 64 * 1024
"""Most characters to search beyond a cut: the largest secret file."""

_ESCAPED = pattern(
    r"(?P<url>(?:%[0-9A-Fa-f]{2})+)|(?P<raw>(?:\\x[0-9A-Fa-f]{2})+)|(?P<utf16>(?:\\u[0-9A-Fa-f]{4})+)"
    r"|\\U(?P<point>[0-9A-Fa-f]{8})|\\(?P<single>.)",
    re.DOTALL,
)
_SCALAR = pattern(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|-?(?P<whole>[0-9]+)(?:\.(?P<rest>[0-9]+))?(?:[eE][+-]?[0-9]+)?', re.DOTALL
)
_COMMON = ((r"\n", "\n"), (r"\"", '"'), (r"\t", "\t"), (r"\/", "/"))
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}

Span = tuple[int, int]


class Redactor:
    """Replaces known secrets in any spelling, and everything that looks like a credential."""

    def __init__(self, secrets: Iterable[str], shared: Redactor | None = None) -> None:
        self._shared = shared
        self._certain: frozenset[str] = frozenset()
        self._whole: frozenset[str] = frozenset()
        self._spelt: frozenset[str] = frozenset()
        self._own_reach = 0
        self._names: frozenset[str] = frozenset()
        self.learn(secrets)

    def learn(self, secrets: Iterable[str], doubtful: Iterable[str] = ()) -> None:
        """Add secrets, thread-safe; `doubtful` ones, which are common words, stay in definitions."""
        known = frozenset(secret for secret in secrets if secret)
        doubted = known.intersection(doubtful)
        self._certain |= all_spellings(known - doubted)
        self._whole |= {secret for secret in known - doubted if len(secret) < WHOLE}
        self._spelt |= all_spellings(known)
        self._own_reach = min(FARTHEST, LONGEST_ESCAPE * max(map(len, self._spelt), default=SHORTEST))

    def replace(self, secrets: Iterable[str]) -> None:
        """Forget all known secrets, and learn these. Not thread-safe."""
        fresh = Redactor(secrets)
        self._certain, self._whole, self._spelt = fresh._certain, fresh._whole, fresh._spelt
        self._own_reach = fresh._own_reach

    def spare(self, names: Iterable[str]) -> None:
        """Keep public names readable even if a secret equals or contains them. Thread-safe."""
        self._names |= {name for name in names if any(spelt in name for spelt in self.known(certain=False))}

    @property
    def reach(self) -> int:
        """The number of characters to search beyond a cut."""
        return max(self._own_reach, self._shared.reach if self._shared else 0)

    def known(self, *, certain: bool) -> Iterator[str]:
        """Every hidden spelling; with `certain`, only undoubted ones."""
        yield from self._certain if certain else self._spelt
        if self._shared is not None:
            yield from self._shared.known(certain=certain)

    def must_be_whole(self, spelt: str) -> bool:
        """Whether a spelling is removed from definitions only as a whole word."""
        return spelt in self._whole or (self._shared is not None and self._shared.must_be_whole(spelt))

    def __call__(self, text: str, most: int = SHOWN) -> str:
        """Redact the first `most` characters, and mark a cut."""
        shown = self.cut(text, most)
        return _without(shown, self._but_names(shown, self._found(shown)))

    def cut(self, text: str | bytes, most: int) -> str:
        """Shorten an unredacted text without cutting a secret apart; use it wherever only a part is kept."""
        if not isinstance(text, str):
            text = text[: 4 * (most + self.reach)].decode(errors="replace")
        if len(text) <= most:
            return text
        reach = self.reach
        first = max(0, most - 2 * reach)
        found = _merged(self._found(text[first : most + reach]))
        # What follows may be needed to recognise a secret that ends exactly there.
        across = [first + start for start, end in found if first + start < most <= first + end]
        return text[: min([most, *across])] + CUT

    def json(self, raw: bytes) -> bytes:
        """Redact strings, keys and long numbers of JSON; other bytes stay, and so do doubtful secrets.

        `raw` may be huge: call this in a thread. Returns the same object if nothing is found.
        """
        if not self._holds(raw.decode(errors="replace")):
            return raw
        return _SCALAR.sub(
            lambda found: self._json_string(found[0]) if found["whole"] is None else self._json_number(found),
            raw,
        )

    def _json_number(self, found: re.Match[bytes]) -> bytes:
        is_whole = len(found["whole"]) >= LONG_NUMBER and not (found["rest"] or b"").strip(b"0")
        return (
            json.dumps(HIDDEN).encode()
            if is_whole and found["whole"].decode() in self.known(certain=True)
            else found[0]
        )

    def _json_string(self, string: bytes) -> bytes:
        try:
            text = json.loads(string, strict=False)
        except ValueError:
            # There is no telling what is in it.
            text, found = HIDDEN, [(0, len(HIDDEN))]
        else:
            found = [] if text in SCHEMA_WORDS else self._found(text, certain=True)
        return json.dumps(_without(text, found)).encode() if found else string

    def _holds(self, text: str, levels: int = MAX_LEVELS) -> bool:
        """Whether the text contains a certain secret, behind up to `levels` of escapes."""
        if any(spelt in text for spelt in self.known(certain=True)):
            return True
        read = _resolved(text) if levels else text
        return read != text and self._holds(read, levels - 1)

    def _found(self, text: str, *, certain: bool = False, levels: int = MAX_LEVELS) -> list[Span]:
        """Places of secrets, unordered, maybe overlapping; `certain` omits doubtful secrets and mere shapes."""
        # Searching for each is cheaper than one pattern of all: nearly every text has none.
        found = [
            span
            for spelt in self.known(certain=certain)
            if spelt in text
            for span in _occurrences(spelt, text)
            if not certain or not self.must_be_whole(spelt) or _is_whole(text, span)
        ]
        if not certain:
            found += credentials(text)
        if levels and ("\\" in text or "%" in text):
            read = _resolved(text)
            inner = self._found(read, certain=certain, levels=levels - 1) if read != text else []
            found += _places(text, inner)
        return found

    def _but_names(self, text: str, found: list[Span]) -> list[Span]:
        named = [
            (start, end)
            for name in self._names
            for start, end in _occurrences(name, text)
            if not _continues(text[start - 1 : start]) and not _continues(text[end : end + 1])
        ]
        return [
            (start, end)
            for start, end in found
            if not any(first <= start and end <= last for first, last in named)
        ]


def _continues(character: str) -> bool:
    return character.isalnum() or character in {"_", "-"}


def _occurrences(spelt: str, text: str) -> Iterator[Span]:
    at = text.find(spelt)
    while at >= 0:
        yield at, at + len(spelt)
        at = text.find(spelt, at + len(spelt))


def _is_whole(text: str, span: Span) -> bool:
    """Whether a place is a whole word; `_` and `-` separate words."""
    return not any(text[at - 1 : at + 1].isalnum() for at in span if 0 < at < len(text))


def _merged(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _without(text: str, spans: list[Span]) -> str:
    pieces, at = [], 0
    for start, end in _merged(spans):
        pieces += [text[at:start], HIDDEN]
        at = end
    return "".join(pieces) + text[at:]


def _resolved(text: str) -> str:
    if "\\\\" not in text:
        # No backslash is escaped, and nearly all escapes are common ones, which are replaced quickly.
        for escape, meaning in _COMMON:
            text = text.replace(escape, meaning)
    return _ESCAPED.sub(_meaning, text) if "\\" in text or "%" in text else text


def _meaning(escaped: re.Match[str]) -> str:
    if (single := escaped["single"]) is not None:
        return _CONTROLS.get(single, single)
    text = escaped[0]
    match escaped.lastgroup:
        case "url":
            return unquote(text)
        case "raw":
            return _decoded(bytes.fromhex(text.replace("\\x", "")))
        case "utf16":
            return bytes.fromhex(text.replace("\\u", "")).decode("utf-16-be", "surrogatepass")
        case _:
            return bytes.fromhex(escaped["point"]).decode("utf-32-be", "replace")


def _decoded(raw: bytes) -> str:
    """The text of a bytes repr: UTF-8, or Latin-1 like the repr of a `str`."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _places(text: str, spans: list[Span]) -> list[Span]:
    if not spans:
        return []
    places: list[Span] = []
    at = 0
    for found in _ESCAPED.finditer(text):
        places += [(each, each + 1) for each in range(at, found.start())]
        places += [found.span()] * len(_meaning(found))
        at = found.end()
    places += [(each, each + 1) for each in range(at, len(text))]
    return [(places[start][0], places[end - 1][1]) for start, end in spans]
