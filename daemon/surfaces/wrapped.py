"""Takes apart calls of tools through a meta-tool, and repairs their arguments.

Models flatten, stringify and double-wrap arguments. A reading other than the literal one counts only if it
alone fits the schema and uses everything that was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from daemon.errors import InvalidArguments
from daemon.model import Repair, Tool
from daemon.protocol import UNREADABLE, decode_members, decode_text, decoded
from daemon.surfaces.explaining import refusal
from daemon.surfaces.validators import WRAPPERS, Object, Validator, validator_of


class Wrapped(Struct, frozen=True, kw_only=True):
    """A wrapper call taken apart: the tool, and everything that may be its arguments."""

    said: Mapping[str, str]
    name: str
    wrapper: Wrapper
    arguments: Raw | None
    beside: Mapping[str, Raw]

    def __repr__(self) -> str:
        return f"<Wrapped {self.name}>"

    def example(self, arguments: object) -> object:
        """The same call with other arguments."""
        return {**self.said, self.wrapper.slot: arguments}


class Wrapper:
    """The form of one meta-tool's arguments."""

    def __init__(self, slot: str, own: tuple[str, ...], example: str) -> None:
        self.slot = slot
        self._own = own
        self._example = example
        self.opening = b'"%b":{' % slot.encode()
        """Begins the tool's arguments in the usual form. No name contains it, since JSON escapes quotes."""

    def head(self, sent: bytes) -> bytes | None:
        """The bytes before the members of the tool's arguments; None unless the call is in the usual form."""
        wrapped, end = self.unwrap(sent), sent.find(self.opening) + len(self.opening)
        is_compact = end == len(msgspec.json.encode(wrapped.said)) + len(self.opening)
        return sent[:end] if is_compact and not wrapped.beside else None

    def unwrap(self, sent: bytes) -> Wrapped:
        """Take a wrapper call (a raw JSON object) apart. Raises `InvalidArguments`."""
        said: dict[str, str] = {}
        try:
            members = decode_members(sent)
            for key in self._own:
                said[key] = decode_text(members.pop(key))
        except KeyError as error:
            raise InvalidArguments(
                f"{error.args[0]!r} is missing. Call it like this: {self._example}"
            ) from None
        except UNREADABLE as error:
            names = ", ".join(self._own)
            raise InvalidArguments(f"{names}: {error}. Call it like this: {self._example}") from None
        arguments = members.pop(self.slot, None)
        if arguments is not None and bytes(arguments) == b"null":
            arguments = None
        if arguments is None and len(members) == 1 and members.keys() <= WRAPPERS:
            # The arguments are in a slot of another name.
            _slot, arguments = members.popitem()
        return Wrapped(said=said, name=said[self._own[-1]], wrapper=self, arguments=arguments, beside=members)


MAX_CHECKED = 256 * 1024
"""Bytes of arguments that are validated; longer ones would hold the event loop for milliseconds."""

MAX_LAYERS = 3
"""Wrappers and strings unpacked at most."""

_NULL = Raw(b"null")


class Read(Struct, frozen=True):
    """A tool's arguments, as they were understood."""

    arguments: bytes | Raw
    """A raw JSON object: the client's own bytes unless repaired."""
    repair: Repair | None


def read_arguments(
    tool: Tool | None,
    name: str,
    args: bytes | Raw | None,
    beside: Mapping[str, Raw],
    example: Callable[[object], object] | None = None,
) -> Read:
    """The arguments that a wrapper call means. Raises InvalidArguments if none or several readings fit."""
    size = len(args or b"")
    if beside:
        size += sum(len(key) + len(value) for key, value in beside.items())
    sent = _sent(None if args is None else bytes(args), beside, look=size <= MAX_CHECKED)
    validator = validator_of(tool)
    if validator is None or size > MAX_CHECKED:
        fitting = [] if sent.own is None or beside else [sent.own]
    else:
        fitting = _fitting(sent, validator)
    if len(fitting) == 1:
        return fitting[0]
    raise refusal(name, validator, sent.value, list(beside), example, several=bool(fitting))


class _Sent(Struct, frozen=True, kw_only=True):
    value: object
    """The decoded value of the slot, with strings opened; `{}` if absent, None if undecodable."""
    own: Read | None
    """The literal reading of an object, or of a string that holds an object; else None."""
    beside: Object | None
    """The decoded members next to the slot; None if one is undecodable."""


def _sent(args: bytes | None, beside: Mapping[str, Raw], *, look: bool) -> _Sent:
    others: Object | None = {}
    if beside:
        others = _others(beside) if look else None
    stripped = (args or b"").strip()
    if args is None or stripped == b"null":
        return _Sent(value={}, own=Read(b"{}", None), beside=others)
    if stripped.startswith(b"{"):
        return _Sent(value=_decoded(args) if look else {}, own=Read(args, None), beside=others)
    value = _decoded(args)
    opened = _opened(value)
    if opened is None:
        return _Sent(value=value, own=None, beside=others)
    return _Sent(value=opened, own=Read(msgspec.json.encode(opened), Repair.STRINGIFIED), beside=others)


def _others(beside: Mapping[str, Raw]) -> Object | None:
    others = {key: _decoded(value) for key, value in beside.items()}
    readable = all(value is not None or beside[key] == _NULL for key, value in others.items())
    return others if readable else None


def _decoded(raw: bytes | Raw | str) -> Any:
    """Decode JSON; None if that is impossible (1e400, half a surrogate pair, too deep)."""
    return decoded(msgspec.json.decode, raw)


def _fitting(sent: _Sent, validator: Validator) -> list[Read]:
    """The readings that fit; only the literal one if it fits and does not look like a wrapper."""
    own = sent.own if sent.beside == {} else None
    if own is not None and sent.value is not None and not validator.accepts(sent.value):
        own = None
    if own is not None and not _looks_wrapped(sent.value, validator):
        return [own]
    fitting: dict[bytes, Read] = {}
    for reading, repair in _readings(sent):
        if validator.proves(reading) and _declares(validator, reading):
            read = Read(msgspec.json.encode(reading), repair)
            fitting.setdefault(msgspec.json.encode(reading, order="sorted"), read)
    return [own] if own is not None and len(fitting) != 1 else list(fitting.values())


def _readings(sent: _Sent) -> Iterator[tuple[Object, Repair]]:
    value, beside = sent.value, sent.beside
    if sent.own is None or beside is None or not isinstance(value, dict):
        return
    if not beside:
        repair = sent.own.repair or Repair.UNWRAPPED
        yield from ((inner, repair) for inner in _unwrapped(value))
        return
    if not value:
        yield from ((inner, Repair.UNWRAPPED) for inner in _unwrapped(beside))
    if not value.keys() & beside.keys():
        yield {**value, **beside}, Repair.FLATTENED


def _unwrapped(value: Object) -> Iterator[Object]:
    inner: object = value
    for _ in range(MAX_LAYERS):
        if not isinstance(inner, dict) or len(inner) != 1 or not inner.keys() <= WRAPPERS:
            return
        (inner,) = inner.values()
        inner = _opened(inner) if isinstance(inner, str) else inner
        if isinstance(inner, dict):
            yield inner


def _opened(value: object) -> Object | None:
    """The object in a string, which may be in another string; else None."""
    for _ in range(MAX_LAYERS):
        if not isinstance(value, str):
            break
        value = _decoded(value)
        if isinstance(value, dict):
            return value
    return None


def _looks_wrapped(value: object, validator: Validator) -> bool:
    """Whether a valid object is a wrapper: its only member is undeclared and has a wrapper's name."""
    if not isinstance(value, dict) or len(value) != 1 or not value.keys() <= WRAPPERS:
        return False
    declared = validator.schema.get("properties")
    return isinstance(declared, dict) and bool(declared) and not value.keys() & declared.keys()


def _declares(validator: Validator, value: Object) -> bool:
    """Whether the schema declares every member, not only allows it."""
    schema = validator.schema
    declared = schema.get("properties")
    if not isinstance(declared, dict) or not declared:
        return True
    if schema.get("additionalProperties") not in (None, False) or "patternProperties" in schema:
        return True
    return value.keys() <= declared.keys()
