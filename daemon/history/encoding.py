"""Events as JSON: for programs, with all fields by name; for the store, what its columns do not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from daemon.causes import Cause
from daemon.history.event import Event, EventKind
from daemon.history.event_words import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping


class _Body(msgspec.Struct, omit_defaults=True):
    """What the columns of the store's table do not have; empty values are left out."""

    run: int = 0
    text: str = ""
    cause: str | None = None
    data: dict[str, Any] = {}
    details: dict[str, Any] = {}


_decode = msgspec.json.Decoder(_Body).decode


def as_json(event: Event) -> dict[str, object]:
    """An event as programs get it; `message` is its sentence for people."""
    return {
        "at": event.at,
        "kind": str(event.kind),
        "server": event.server or None,
        "instance": event.instance or None,
        "session": event.session or None,
        "run": event.run or None,
        "message": sentence(event),
        "isBad": event.is_bad,
        "text": event.text,
        "cause": None if event.cause is None else str(event.cause),
        "causeData": event.cause_data,
        "details": event.details,
        "daemon": event.life,
        "number": event.number,
    }


def body_of(event: Event) -> bytes:
    """The rest of an event for the store."""
    return msgspec.json.encode(
        _Body(
            run=event.run,
            text=event.text,
            cause=None if event.cause is None else str(event.cause),
            data=dict(event.cause_data),
            details=dict(event.details),
        )
    )


def stored_event(cells: Mapping[str, Any]) -> Event | None:
    """The event in a row of the store; None if a later mcpd, or somebody by hand, has written what it says."""
    try:
        body = _decode(cells["body"])
        return Event(
            kind=EventKind(cells["kind"]),
            at=cells["at"],
            server=cells["server"],
            instance=cells["instance"],
            session=cells["session"],
            run=body.run,
            text=body.text,
            cause=None if body.cause is None else Cause(body.cause),
            cause_data=body.data,
            details=body.details,
            number=cells["number"],
            life=cells["life"],
        )
    except (ValueError, TypeError, msgspec.MsgspecError):
        return None
