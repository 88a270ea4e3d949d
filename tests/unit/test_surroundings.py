"""What a daemon is given from outside has a use without HTTP, a service manager or a watchdog."""

from __future__ import annotations

import attrs

from daemon.surroundings import Surroundings


def test_only_what_every_daemon_has_must_be_given() -> None:
    given = {field.name for field in attrs.fields(Surroundings) if field.default is attrs.NOTHING}
    assert given == {"front", "control", "facts", "redact", "place", "file", "logins"}
