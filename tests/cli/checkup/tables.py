"""What must hold for every table of remedies."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

from daemon.cli.checkup.rows import Remedy, Row, search
from daemon.redact import Redactor

if TYPE_CHECKING:
    from collections.abc import Sequence

SERVER = "git"


def meant(rows: Sequence[Row], said: str) -> Remedy:
    """What a table says to a line."""
    found = search(rows, [said], SERVER)
    assert found is not None, f"nothing is known about {said!r}"
    return found


def holds_its_cases(rows: Sequence[Row], cases: Sequence[str]) -> None:
    """Each row is the first that fits one of the cases, and speaks in sentences then."""
    for row in rows:
        alone = [
            said for said in cases if (found := search([row], [said], SERVER)) and found == meant(rows, said)
        ]
        assert alone, f"no case for {row.pattern}"
    for text in (text for said in cases for text in meant(rows, said)):
        assert text[-1] in ".!?"
        assert text[0] in string.ascii_letters + string.digits + "/`"
        assert "  " not in text
        assert "{0}" not in text
        assert "server}" not in text
        # Advice that looks like a password would be shown as one that is hidden.
        assert Redactor(())(text) == text
