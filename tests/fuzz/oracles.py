"""What must hold of any bytes, without a daemon; each function raises `Disagreement`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from msgspec import UNSET, Raw

from daemon.config.config_model import Config
from daemon.config.parse import load
from daemon.errors import ConfigError
from daemon.surfaces.table import SURFACES
from daemon.wire import envelope
from daemon.wire.envelope import HEAD_BYTES, id_in_head
from tests.fuzz.mutation import PASSWORD
from tests.fuzz.promises import Due, Members, Said, from_server, read, to_client

UID = 1
"""The id that a server's answer has to carry."""

CANARY = "a-secret-that-nobody-may-see"
"""Stands in the environment and in a file: it must not come out of the reader."""


class Disagreement(Exception):
    """Two readers of the same bytes say different things, or one promised another thing than it did."""


def _require(holds: object, what: str) -> None:
    if not holds:
        raise Disagreement(what)


# --- the envelope -------------------------------------------------------------------------------------------


def from_client(line: bytes) -> None:
    """A client's line: taken with the members that the standard library reads, or refused as promised."""
    promise = to_client(line)
    try:
        taken = envelope.decode_strictly(line)
    except envelope.BadMessage as fault:
        if not line.strip():
            return
        _require(promise.due is Due.ERROR or promise.optional or _is_big(line), f"refused: {fault}")
        said = Members(
            [("id", read(fault.request_id.decode())), ("error", Members([("code", str(fault.code))]))]
        )
        if promise.due is Due.ERROR:
            _require(
                promise.admits(said), f"{fault.code} for {fault.request_id!r} instead of {promise}: {fault}"
            )
        return
    nobodys = taken.method is UNSET
    _require(promise.due is not Due.ERROR or promise.optional or nobodys, f"taken in spite of {promise}")
    _compare(line, taken)


def _is_big(line: bytes) -> bool:
    return len(line) > envelope.MAX_ENVELOPE_BYTES


def a_servers(line: bytes) -> None:
    """A server's line: it means what the standard library finds in it, and what goes on is the line's own."""
    said, _ = from_server(line, UID)
    try:
        taken = envelope.decode(line)
    except envelope.BadMessage:
        _require(said in {Said.NOISE, Said.EITHER}, f"refused, and it is {said}")
        return
    answers = taken.method is UNSET and taken.id is not UNSET
    is_message = taken.method is not UNSET or (
        answers and (taken.result is not UNSET or taken.error is not UNSET)
    )
    _require(is_message == (said is not Said.NOISE) or said is Said.EITHER, f"taken, and it is {said}")
    if line.isascii() and said is not Said.EITHER:
        _compare(line, taken)
    frame = b"".join(map(bytes, envelope.response(b"1", b"{}" if taken.result is UNSET else taken.result)))
    _require((b"\n" not in line and b"\n" not in frame) or b"\n" in line, "a frame of two lines")


def _compare(line: bytes, taken: envelope.Envelope) -> None:
    """Every member is there, equal, and the payload byte for byte what stood in the line."""
    message = read(line.decode())
    for name in envelope.Envelope.__struct_fields__:
        ours = getattr(taken, name)
        _require((ours is not UNSET) == message.has(name), f"{name} is there for one reader only")
        if ours is UNSET:
            continue
        value = read(bytes(ours).decode()) if isinstance(ours, Raw) else ours
        _require(_same(value, message.last(name)), f"{name} is another one")
        _require(not isinstance(ours, Raw) or bytes(ours) in line, f"{name} is not as it was written")


def _same(one: Any, other: Any) -> bool:
    try:
        return type(one) is type(other) and bool(one == other)
    except RecursionError:
        return True


def an_envelope(data: bytes) -> None:
    """As a client's line and as a server's; and whatever head it begins with, an id can be written from it."""
    line = data.replace(b"\n", b" ")
    from_client(line)
    a_servers(line)
    found = id_in_head(line[:HEAD_BYTES])
    value = read(found.decode(errors="replace")) if found.isascii() else found.decode(errors="replace")
    _require(found == b"null" or isinstance(value, str), f"{found!r} cannot be an id")


# --- the configuration --------------------------------------------------------------------------------------

_FILE = Path(f"/proc/self/fd/{os.memfd_create('mcpd.json')}")
"""In memory, and gone with this process even if the process is killed."""
ENVIRON = {"TOKEN": CANARY, "HOME": "/home/nobody", "EMPTY": ""}


def a_config(data: bytes) -> None:
    """Any bytes end in a configuration, or in faults that say where, and no secret."""
    _FILE.write_bytes(data)
    try:
        config = load(_FILE, ENVIRON, SURFACES)
    except ConfigError as error:
        _require(error.faults, "no fault")
        text = str(error)
        _require(CANARY not in text, f"the secret in: {text}")
        text.encode()
        unread = all(fault.path.startswith("line ") for fault in error.faults)
        _require(not unread or PASSWORD not in text, f"a line of the file in: {text}")
        for fault in error.faults:
            told = fault.path.startswith(("$", "line "))
            _require(told and fault.message, f"a fault without a place: {fault}")
        return
    _require(isinstance(config, Config), "no configuration")
    _require(CANARY not in repr(config), "the secret in the repr")
