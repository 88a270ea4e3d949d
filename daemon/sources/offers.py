"""A server that a registry or bundle offers (${VAR} in its texts is plain text); its entry with answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from textwrap import shorten
from typing import Any

import attrs

from daemon.config.config_model import EntryOrigin
from daemon.errors import McpdError
from daemon.setup.adding import WantedServer
from daemon.setup.moved_secrets import in_our_words

MOST_PROSE = 300
"""Most characters of a text from outside that mcpd stores or shows for people."""

INPUT = re.compile(r"(?<!\$)\$\{input:([^}]+)\}")
_REFERENCES = re.compile(r"\$+\{[^}]*\}?|\{(?:env|file):[^{}]+\}|\A\$[A-Z]\w+\Z")
_FILLED = ("command", "url", "env", "headers")
"""The keys of an entry, besides `args`, that may hold inputs."""

_COLON = re.compile(r":(?![^{}]*\})")
"""Matches a colon outside of references."""


class SourceTrouble(McpdError):
    """A registry, a bundle or a download is refused or unreadable; the text says why."""


def prose(text: str) -> str:
    """Cut a text from outside to a length that people read."""
    return shorten(text, MOST_PROSE, placeholder=" …")


@attrs.frozen(kw_only=True)
class Input:
    """A value that a server needs from its user."""

    name: str
    """The name for `--env NAME=VALUE`, and for `${input:NAME}` in the entry."""
    description: str = attrs.field(default="", converter=prose)
    required: bool = False
    secret: bool = False
    default: str | None = attrs.field(default=None, repr=False)
    choices: tuple[str, ...] = ()
    multiple: bool = False
    """Whether the answer is several values separated by colons, each an argument (after its option, if any)."""

    def refusal(self, answer: str) -> str:
        """Why an answer, or "" for none, is refused; empty for a fitting answer and for a `${…}` reference."""
        if not answer:
            return "is needed" if self.required and not self.default else ""
        values = answer.split(":") if self.multiple else [answer]
        fits = not self.choices or "${" in answer or {*values} <= {*self.choices}
        return "" if fits else f"is one of {', '.join(self.choices)}"


@attrs.frozen(kw_only=True)
class ServerOffer(WantedServer):
    """A server to add, whose inputs are not given yet; `notes` are for the user before agreeing.

    The entry has `${input:NAME}` for inputs; a list in its `args` is used only if all its inputs are given.
    """

    origin: EntryOrigin
    inputs: tuple[Input, ...] = ()


def as_text(value: Any) -> Any:
    """Escape all text in a value from outside that mcpd would otherwise read as a reference."""
    return in_our_words(value, "", None)


def missing(offer: ServerOffer, answers: Mapping[str, str]) -> list[Input]:
    """The inputs whose answer does not fit, and the required ones with neither an answer nor a default."""
    return [each for each in offer.inputs if each.refusal(answers.get(each.name, ""))]


def asking(offer: ServerOffer) -> ServerOffer:
    """An offer with only those inputs that its entry holds."""
    held = {*INPUT.findall(str([offer.entry.get(key) for key in (*_FILLED, "args")]))}
    return attrs.evolve(offer, inputs=tuple(each for each in offer.inputs if each.name in held))


def filled(offer: ServerOffer, answers: Mapping[str, str]) -> dict[str, Any]:
    """The entry with answers (references allowed) and defaults (not allowed), without the description."""
    values = {each.name: as_text(each.default) for each in offer.inputs if each.default is not None}
    values |= {name: answer for name, answer in answers.items() if answer}
    several = [f"${{input:{each.name}}}" for each in offer.inputs if each.multiple]
    entry = {key: _filled(value, values) if key in _FILLED else value for key, value in offer.entry.items()}
    entry["args"] = list(_arguments(entry.get("args", ()), values, several))
    return {key: value for key, value in entry.items() if value not in (None, [], {}) and key != "description"}


def _arguments(args: Iterable[Any], values: Mapping[str, str], several: Sequence[str]) -> Iterable[str]:
    for group in args:
        parts = [group] if isinstance(group, str) else group
        words = [word for word in (_filled(part, values) for part in parts) if word is not None]
        if len(words) == len(parts):
            is_several = words and parts[-1] in several
            for last in _COLON.split(words[-1]) if is_several else words[-1:]:
                yield from (*words[:-1], last)


def _filled(text: Any, values: Mapping[str, str]) -> Any:
    """A text with its inputs filled in, or None if one of them has no value; an object without such texts."""
    if isinstance(text, Mapping):
        return {name: said for name, each in text.items() if (said := _filled(each, values)) is not None}
    if any(name not in values for name in INPUT.findall(text)):
        return None
    parts = [values[part] if at % 2 else part for at, part in enumerate(INPUT.split(text))]
    if _REFERENCES.findall("".join(parts)) == [each for part in parts for each in _REFERENCES.findall(part)]:
        return "".join(parts)
    # Together they would be a reference, such as `$` and `{TOKEN}`: an empty one stands between them.
    return "${:-}".join(re.sub(r"\$\Z", "${:-$}", part) for part in parts if part)
