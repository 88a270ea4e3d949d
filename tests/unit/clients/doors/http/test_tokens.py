"""The tokens that count: compared without telling anything, and known as soon as they are made or revoked."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.clients.doors.http.tokens import Tokens, bearer
from daemon.clients.visitor import Visitor
from daemon.config.listen import AccessToken, HttpListen
from daemon.config.redaction import Redactors
from daemon.host.tokens import TokenFile
from daemon.safety.redact import HIDDEN
from tests.unit.clients.doors.http.admissions import ANN, CI, NOBODY

if TYPE_CHECKING:
    from daemon.operators.clients import Access


@pytest.fixture
def file(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "state")


def tokens(file: TokenFile, configured: Any = None, **more: Any) -> Tokens:
    return Tokens(HttpListen(tokens=configured), file, **{"redact": Redactors(), **more})


def test_configured_tokens_count_without_a_file(file: TokenFile) -> None:
    known = tokens(file, (CI, ANN))
    assert known.match(CI.value) == bearer("ci", ("reader", "default"))
    assert known.match(ANN.value) == bearer("ann", None)
    assert known.match("") is None
    assert tokens(file, NOBODY).match(NOBODY) == Visitor()


@settings(deadline=None)
@given(st.integers(0, 7), st.integers(0, 8))
def test_a_token_is_compared_with_all_of_them_wherever_it_stands(count: int, place: int) -> None:
    """An exit at the right one would tell, by the time, which one it is, and that there are others."""
    compared: list[tuple[bytes, bytes]] = []

    def same(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    configured = tuple(AccessToken(name=f"t{each}", value=f"value-of-token-{each}") for each in range(count))
    known = tokens(TokenFile(Path("/nonexistent")), configured, same=same)
    found = known.match(f"value-of-token-{place}")
    assert (found.token if found else None) == (f"t{place}" if place < count else None)
    assert len(compared) == count
    assert {len(each) for pair in compared for each in pair} <= {32}, "digests, whose length says nothing"


def test_what_compares_them_takes_the_same_time_for_all(file: TokenFile) -> None:
    assert tokens(file)._same is hmac.compare_digest


def test_they_are_what_operators_commands_ask(file: TokenFile) -> None:
    known: Access = tokens(file)
    assert (known.used, known.problem) == ({}, "")


async def test_on_loopback_one_is_made_and_shown_nowhere(file: TokenFile) -> None:
    redact = Redactors()
    known = tokens(file, redact=redact)
    assert not file.path.exists()
    await known.learn()
    made = file.read().default
    assert made is not None
    assert known.match(made.value) == Visitor()
    assert redact(f"he sent {made.value} and left") == f"he sent {HIDDEN} and left"
    assert made.value not in repr(known._known)


@pytest.mark.parametrize("configured", [NOBODY, (CI,), ()])
async def test_none_is_made_where_tokens_are_configured_and_one_made_before_does_not_count(
    file: TokenFile, configured: Any
) -> None:
    await tokens(file, configured).learn()
    assert not file.path.exists()
    made = file.ensure_default(0.0).default
    assert made is not None
    known = tokens(file, configured)
    await known.learn()
    assert known.match(made.value) is None


async def test_a_token_made_by_command_counts_beside_configured_ones_once_it_is_learned(
    file: TokenFile,
) -> None:
    known = tokens(file, (CI,))
    await known.learn()
    value = file.add("phone", ("reader",), 0.0)
    assert known.match(value) is None
    await known.learn()
    assert known.match(value) == bearer("phone", ("reader",))
    assert known.match(CI.value) is not None


async def test_a_revoked_token_lets_nobody_in_and_who_had_it_is_named(file: TokenFile) -> None:
    gone: list[Visitor] = []
    known = tokens(file)
    known.on_revoked = gone.append
    value = file.add("phone", None, 0.0)
    await known.learn()
    old = file.read().default
    assert old is not None
    assert known.match(value)
    assert not gone
    file.revoke("phone")
    file.renew_default(1.0)
    await known.learn()
    assert gone == [Visitor(), bearer("phone", None)]
    assert known.match(value) is known.match(old.value) is None
    assert "phone" not in known.used
    await known.learn()
    assert len(gone) == 2


async def test_a_new_value_under_an_old_name_is_another_token(file: TokenFile) -> None:
    gone: list[Visitor] = []
    known = tokens(file, ())
    known.on_revoked = gone.append
    first = file.add("phone", None, 0.0)
    await known.learn()
    file.revoke("phone")
    second = file.add("phone", None, 0.0)
    await known.learn()
    assert gone == [bearer("phone", None)]
    assert (known.match(first), known.match(second)) == (None, bearer("phone", None))


async def test_a_damaged_file_neither_lets_anybody_in_nor_locks_anybody_out(
    file: TokenFile, log: list[str]
) -> None:
    known = tokens(file, ())
    value = file.add("phone", None, 0.0)
    await known.learn()
    file.path.write_text("nonsense")
    await known.learn()
    assert "is damaged" in known.problem
    assert "is damaged" in log[-1]
    assert known.match(value)
    file.path.unlink()
    await known.learn()
    assert (known.problem, known.match(value)) == ("", None)


def test_when_each_was_last_shown_is_remembered(file: TokenFile) -> None:
    times = iter((5.0, 7.0, 9.0))
    known = tokens(file, (CI, ANN), wall=lambda: next(times))
    for value in (CI.value, ANN.value, "wrong", CI.value):
        known.match(value)
    assert known.used == {"ci": 9.0, "ann": 7.0}
