"""Keeping secrets out of what people and logs are shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

HIDDEN = "[redacted]"

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
    """Replaces known secrets wherever they stand, and what looks like one."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """Take the values that must never be shown; more can be learned."""
        self._secrets: frozenset[str] = frozenset()
        self._known: re.Pattern[str] | None = None
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """These must not be shown either from now on; those known before stay: servers may still print them.

        May be called in any thread.
        """
        self._secrets |= {secret for secret in secrets if secret}
        # Longer ones first, so that none leaves a rest.
        ordered = sorted(self._secrets, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def __call__(self, text: str) -> str:
        """The text without secrets."""
        known = self._known
        if known is not None:
            text = known.sub(HIDDEN, text)
        for pattern in _PATTERNS:
            text = pattern.sub(rf"\g<1>{HIDDEN}", text)
        return text
