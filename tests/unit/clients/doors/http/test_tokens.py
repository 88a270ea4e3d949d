"""The tokens that count: compared without telling anything, made, confirmed and revoked by operators alone."""

import hmac
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from daemon.clients.client import Principal
from daemon.clients.doors.http.valid_tokens import Tokens, bearer
from daemon.config.listen import AccessToken, ConsoleRole, HttpListen
from daemon.config.redaction import Redactors
from daemon.host.tokens import MAX_TOKENS, Kept, KeptToken, TokenFile, TokenTrouble, decoded, digest, encoded
from daemon.safety.redact import HIDDEN
from tests.unit.clients.doors.http.admissions import ANN, CI, NOBODY


@pytest.fixture
def file(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "state")


def tokens(file: TokenFile, configured: Any = None, **more: Any) -> Tokens:
    return Tokens(HttpListen(tokens=configured), file, **{"redact": Redactors(), **more})


def a_phone(profiles: tuple[str, ...] | None = None, workspaces: tuple[str, ...] = ()) -> Principal:
    """The principal of a token of that name."""
    return bearer("phone", KeptToken(sha256="0" * 64, since=0.0, profiles=profiles, workspaces=workspaces))


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


def kept_in(file: TokenFile) -> bytes:
    return file.path.read_bytes()


async def test_on_loopback_one_is_made_and_shown_to_operators_only(file: TokenFile) -> None:
    redact = Redactors()
    known = tokens(file, redact=redact)
    assert not file.path.exists()
    await known.learn()
    value = await known.shown_default()
    assert known.match(value) == Principal()
    assert await known.shown_default() == value
    assert redact(f"he sent {value} and left") == f"he sent {HIDDEN} and left"
    assert value not in repr(known._known)
    assert value.encode() not in kept_in(file)


@pytest.mark.parametrize("configured", [NOBODY, (CI,), ()])
async def test_none_is_made_where_tokens_are_configured(file: TokenFile, configured: Any) -> None:
    await tokens(file, configured).learn()
    assert not file.path.exists()
    before = tokens(file)
    await before.learn()
    known = tokens(file, configured, handed_over=kept_in(file))
    await known.learn()
    assert known.match(await before.shown_default()) is None
    assert "" not in known.doubted


async def test_a_token_made_by_command_counts_at_once_beside_configured_ones(file: TokenFile) -> None:
    known = tokens(file, (CI,))
    await known.learn()
    value = await known.add("phone", ("reader",))
    assert known.match(value) == a_phone(("reader",))
    assert known.match(CI.value) is not None
    with pytest.raises(TokenTrouble, match="mcpd token revoke phone"):
        await known.add("phone", None)


async def test_a_revoked_token_lets_nobody_in_and_who_had_it_is_named(file: TokenFile) -> None:
    gone: list[Principal] = []
    known = tokens(file)
    known.on_revoked = gone.append
    await known.learn()
    value, old = await known.add("phone", None), await known.shown_default()
    assert known.match(value)
    assert not gone
    await known.revoke("phone")
    await known.renew_default()
    assert gone == [a_phone(), Principal()]
    assert known.match(value) is known.match(old) is None
    assert "phone" not in known.used
    second = await known.add("phone", None)
    assert (known.match(value), known.match(second)) == (None, a_phone())
    with pytest.raises(TokenTrouble, match="did you mean"):
        await known.revoke("phne")
    with pytest.raises(TokenTrouble, match="no token is named ''"):
        await known.revoke("")
    assert known.match(await known.shown_default()) == Principal()


async def test_what_was_handed_over_counts_and_what_only_the_file_says_is_doubted(file: TokenFile) -> None:
    handed: list[bytes] = []
    before = tokens(file, hand_over=handed.append)
    await before.learn()
    default, evil = await before.shown_default(), "e" * 40
    phone = await before.add("phone", None, None, ("/srv/phone",))
    kept = decoded(handed[-1])
    assert set(kept.tokens) == {"phone"}
    forged = KeptToken(sha256=digest(evil).hex(), since=0, console=ConsoleRole.CONTROL)
    wider = structs.replace(kept.tokens["phone"], workspaces=("*",))
    file.write(Kept(default=forged, tokens={"phone": wider, "more": forged}))
    known = tokens(file, handed_over=handed[-1])
    await known.learn()
    theirs = a_phone(workspaces=("/srv/phone",))
    assert [known.match(each) for each in (default, phone, evil)] == [Principal(), theirs, None]
    assert known.doubts(evil)
    with pytest.raises(TokenTrouble, match="only its digest is kept"):
        await known.shown_default()


async def test_a_doubted_token_counts_once_an_operator_confirms_it(file: TokenFile, log: list[str]) -> None:
    before = tokens(file)
    await before.learn()
    default, phone = await before.shown_default(), await before.add("phone", None)
    known = tokens(file)
    await known.learn()
    assert "tokens of an earlier daemon are not accepted" in log[-1]
    assert (known.match(default), known.match(phone)) == (None, None)
    assert known.doubts(default)
    assert not known.doubts("wrong")
    with pytest.raises(TokenTrouble, match="there is a token 'phone' already"):
        await known.add("phone", None)
    await known.confirm("phone")
    assert (known.match(default), known.match(phone)) == (None, a_phone())
    await known.confirm(None)
    assert known.match(default) == Principal()
    for name in (None, "phone"):
        with pytest.raises(TokenTrouble, match="wait"):
            await known.confirm(name)
    assert file.read().tokens == {name: each for name, each in known.kept.items() if name}


async def test_a_doubted_default_makes_room_for_the_one_that_an_operator_wants_to_see(file: TokenFile) -> None:
    before = tokens(file)
    await before.learn()
    known = tokens(file)
    await known.learn()
    value = await known.shown_default()
    assert known.match(value) == Principal()
    assert known.match(await before.shown_default()) is None
    assert "" not in known.doubted


async def test_a_damaged_file_lets_nobody_in_and_is_not_written_over(file: TokenFile, log: list[str]) -> None:
    await tokens(file).learn()
    file.path.write_text("nonsense")
    known = tokens(file)
    await known.learn()
    assert "is damaged" in known.problem
    assert "is damaged" in log[-1]
    with pytest.raises(TokenTrouble, match="is damaged"):
        await known.add("phone", None)
    assert kept_in(file) == b"nonsense"


async def test_there_are_not_more_than_a_request_can_be_compared_with(file: TokenFile) -> None:
    one = KeptToken(sha256="0" * 64, since=0)
    many = Kept(tokens={f"t{number}": one for number in range(MAX_TOKENS)})
    known = tokens(file, handed_over=encoded(many))
    await known.learn()
    with pytest.raises(TokenTrouble, match=f"there are {MAX_TOKENS} tokens already"):
        await known.add("one-more", None)


def test_when_each_was_last_shown_is_remembered(file: TokenFile) -> None:
    times = iter((5.0, 7.0, 9.0))
    known = tokens(file, (CI, ANN), wall=lambda: next(times))
    for value in (CI.value, ANN.value, "wrong", CI.value):
        known.match(value)
    assert known.used == {"ci": 9.0, "ann": 7.0}
