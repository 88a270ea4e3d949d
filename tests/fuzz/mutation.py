"""Malformed messages, made of real ones: the same for the same seed, and each can be made again alone."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import attrs

from tests.unit.cases import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

UID = 987_654_321
"""The id of a request that a server's messages answer: whoever says them puts the real one in its place."""

MOST_CHANGES = 3
"""Mutations laid over one another: more of them, and little is left of a message but noise."""

OF_VALUES = 0.75
"""The share in which a value is changed, which mostly leaves JSON; bytes mostly leave none."""

LATER_CHANGES = (0, 0, 0, 0, 1, 2)
"""So many changes of bytes after one of a value."""

_HERE = "@@here@@"


FROM_CLIENTS: tuple[dict[str, Any], ...] = tuple(rows_of(Path(__file__), "from_clients"))
"""What clients say, of every kind that a session tells apart."""


FROM_SERVERS: tuple[dict[str, Any], ...] = tuple(rows_of(Path(__file__), "from_servers"))
"""What servers say while a call is in flight."""


PASSWORD = "a-password-in-the-file"
"""Stands in configurations where values are secret: in an environment, a header, a URL."""

CONFIGS: tuple[dict[str, Any], ...] = tuple(rows_of(Path(__file__), "configurations"))
"""Configurations with everything that the reader does something about."""


@attrs.frozen
class Malformed:
    """One input."""

    number: int
    """Which one of its seed."""
    kind: str
    """What was done to a real message."""
    data: bytes = attrs.field(repr=False)
    """The bytes, without a last newline; there may be newlines within."""


def malformed(seed: int, messages: Sequence[dict[str, Any]], count: int, first: int = 0) -> Iterator[Malformed]:
    """So many inputs of a seed, from the number `first` on."""
    return (one(seed, messages, number) for number in range(first, first + count))


def one(seed: int, messages: Sequence[dict[str, Any]], number: int) -> Malformed:
    """The input of this number."""
    rng = Random(f"{seed}:{number}")
    message = rng.choice(messages)
    kinds = []
    if rng.random() < OF_VALUES:
        change = rng.choice(_OF_VALUES)
        data = change(rng, message)
        kinds.append(change.__name__)
    else:
        data = written(message, rng)
    changes = rng.choice(LATER_CHANGES) if kinds else rng.randint(1, MOST_CHANGES)
    for _ in range(changes):
        alter = rng.choice(OF_BYTES)
        data = alter(rng, data)
        kinds.append(alter.__name__)
    return Malformed(number, "+".join(kinds).replace("_", " ").strip(), data)


def written(message: object, rng: Random) -> bytes:
    """As one of the many JSON writers would write it."""
    separators = rng.choice([(",", ":"), (", ", ": "), (" ,\t", " : ")])
    return json.dumps(message, ensure_ascii=rng.random() < 0.5, separators=separators).encode()


# --- of a message's values ----------------------------------------------------------------------------------

_IDS: tuple[str, ...] = (*rows_of(Path(__file__), "ids"), '"' + "i" * 5000 + '"', "9" * 400, "1" * 5000)
_WRONG: tuple[str, ...] = tuple(rows_of(Path(__file__), "wrong"))
_NUMBERS: tuple[str, ...] = (
    *rows_of(Path(__file__), "numbers"),
    "9" * 5000,
    "-" + "9" * 400,
    "0." + "1" * 5000,
)
_DEPTHS = (60, 100, 124, 126, 127, 128, 130, 300, 900, 990, 1000, 1024, 2000, 20_000)
_MEMBERS = ("jsonrpc", "id", "method", "params", "result", "error")


def _placed(rng: Random, message: object, raw: bytes) -> bytes:
    """`message` with raw text where `_HERE` stands."""
    return written(message, rng).replace(json.dumps(_HERE).encode(), raw)


def _somewhere(rng: Random, value: Any) -> Any:
    """`value` with `_HERE` in some place, as deep as it goes."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.2:
        return _HERE
    if isinstance(value, dict):
        key = rng.choice(list(value))
        return {**value, key: _somewhere(rng, value[key])}
    place = rng.randrange(len(value))
    return [*value[:place], _somewhere(rng, value[place]), *value[place + 1 :]]


def _strange_number(rng: Random, message: dict[str, Any]) -> bytes:
    return _placed(rng, _somewhere(rng, message), rng.choice(_NUMBERS).encode())


def _strange_id(rng: Random, message: dict[str, Any]) -> bytes:
    return _placed(rng, {**message, "id": _HERE}, rng.choice(_IDS).encode())


def _wrong_member(rng: Random, message: dict[str, Any]) -> bytes:
    return _placed(rng, {**message, rng.choice(_MEMBERS): _HERE}, rng.choice(_WRONG).encode())


def _wrong_value(rng: Random, message: dict[str, Any]) -> bytes:
    return _placed(rng, _somewhere(rng, message), rng.choice(_WRONG).encode())


def _member_left_out(rng: Random, message: dict[str, Any]) -> bytes:
    gone = rng.choice(list(message))
    return written({key: value for key, value in message.items() if key != gone}, rng)


def _key_doubled(rng: Random, message: dict[str, Any]) -> bytes:
    """Twice in the envelope or deeper, the second time perhaps in another spelling."""
    key = rng.choice(list(message))
    spelt = json.dumps(key)
    if rng.random() < 0.4:
        spelt = f'"\\u{ord(key[0]):04x}{key[1:]}"'
    again = rng.choice([*_WRONG, written(message[key], rng).decode()])
    whole = written(message, rng)
    extra = f"{spelt}:{again}".encode()
    return b"{" + extra + b"," + whole[1:] if rng.random() < 0.5 else whole[:-1] + b"," + extra + b"}"


def _key_escaped(rng: Random, message: dict[str, Any]) -> bytes:
    key = rng.choice(list(message))
    place = rng.randrange(len(key))
    spelt = f'"{key[:place]}\\u{ord(key[place]):04x}{key[place + 1 :]}"'
    return written(message, rng).replace(json.dumps(key).encode(), spelt.encode(), 1)


def _nested(rng: Random, message: dict[str, Any]) -> bytes:
    depth = rng.choice(_DEPTHS)
    opening, closing = rng.choice([(b"[", b"]"), (b'{"a":', b"}"), (b'[{"":', b"}]")])
    less = rng.choice([0, 0, 0, 1, depth])
    inner = opening * depth + b"0" + closing * (depth - less)
    return _placed(rng, _somewhere(rng, message), inner)


def _giant(rng: Random, message: dict[str, Any]) -> bytes:
    size = rng.choice([300, 5000, 70_000])
    raw = rng.choice(
        [f'{{"{"k" * size}":1}}', json.dumps({str(n): n for n in range(size // 10)}), f'"{"x" * size}"']
    )
    place = rng.choice([_somewhere(rng, message), {"extra": _HERE, **message}, {**message, "extra": _HERE}])
    return _placed(rng, place, raw.encode())


def _batch(rng: Random, message: dict[str, Any]) -> bytes:
    return written(rng.choice([[], [message], [message, message], [[message]], [1, message], [None]]), rng)


def _not_a_message(rng: Random, _message: dict[str, Any]) -> bytes:
    return rng.choice(
        [*_WRONG, *_NUMBERS, "", " ", "\r", "\t \r", "Listening on stdio", "\x1b[31mred", "{", "}"]
    ).encode()


_OF_VALUES: tuple[Callable[[Random, dict[str, Any]], bytes], ...] = (
    *(_strange_number, _strange_id, _strange_id, _wrong_member, _wrong_member, _wrong_value, _member_left_out),
    *(_key_doubled, _key_escaped, _nested, _giant, _batch, _not_a_message),
)


# --- of its bytes -------------------------------------------------------------------------------------------

_PIECES: tuple[bytes, ...] = tuple(
    each.encode(errors="surrogateescape") for each in rows_of(Path(__file__), "pieces")
)
_ENCODINGS = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-7", "latin-1")


def _place(rng: Random, data: bytes) -> int:
    return rng.randrange(len(data) + 1)


def _truncated(rng: Random, data: bytes) -> bytes:
    place = _place(rng, data)
    return data[:place] if rng.random() < 0.8 else data[place:]


def _flipped(rng: Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 8]) if out else 0):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _inserted(rng: Random, data: bytes) -> bytes:
    place = _place(rng, data)
    return data[:place] + rng.choice(_PIECES) + data[place:]


def _cut_out(rng: Random, data: bytes) -> bytes:
    place = _place(rng, data)
    return data[:place] + data[place + rng.choice([1, 1, 2, 10]) :]


def _repeated(rng: Random, data: bytes) -> bytes:
    start, end = sorted((_place(rng, data), _place(rng, data)))
    return data[:end] + data[start:end] + data[end:]


def _at_the_ends(rng: Random, data: bytes) -> bytes:
    piece = rng.choice(_PIECES)
    return piece + data if rng.random() < 0.5 else data + piece


def _in_another_encoding(rng: Random, data: bytes) -> bytes:
    return data.decode(errors="replace").encode(rng.choice(_ENCODINGS), errors="replace")


def _joined(rng: Random, data: bytes) -> bytes:
    return data + rng.choice([b"", b" ", b",", b"\r", b"\n", b"\x1e"]) + data


def _comma(rng: Random, data: bytes) -> bytes:
    closing = rng.choice([b"}", b"]"])
    return data.replace(closing, b"," + closing, 1)


OF_BYTES: tuple[Callable[[Random, bytes], bytes], ...] = (
    *(_truncated, _flipped, _flipped, _inserted, _inserted, _cut_out, _repeated),
    *(_at_the_ends, _in_another_encoding, _joined, _comma),
)
