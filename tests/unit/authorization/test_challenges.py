"""What is read of `WWW-Authenticate`."""

import pytest

from daemon.authorization.logins import MAX_HEADER, MAX_SCOPE, Challenge, bearer_challenge, union


@pytest.mark.parametrize(
    ("header", "challenge"),
    [
        ("", None),
        ("Basic realm=x", None),
        ("Negotiate YIIabc==", None),
        ("Bearer", Challenge()),
        ('Bearer realm="a, Bearer b"', Challenge()),
        ("bearer error=invalid_token", Challenge(error="invalid_token")),
        ('Bearer error="insufficient", scope="a b:c"', Challenge(error="insufficient", scope="a b:c")),
        ('Basic realm="x", Bearer scope="a", Digest scope="b"', Challenge(scope="a")),
        ('Bearer scope="a", Bearer scope="b"', Challenge(scope="a")),
        ('Bearer scope="a", scope="b"', Challenge(scope="a")),
        (r'Bearer error="a\"b", scope=x', Challenge(error='a"b', scope="x")),
    ],
)
def test_the_first_bearer_challenge_counts(header: str, challenge: Challenge | None) -> None:
    assert bearer_challenge(header) == challenge


@pytest.mark.parametrize("scope", ["a\tb", "a  b", "ä", "a\x1b[2J", "x" * (MAX_SCOPE + 1), r"a\"b"])
def test_a_scope_that_has_another_form_is_not_asked_for(scope: str) -> None:
    assert bearer_challenge(f'Bearer scope="{scope}"') == Challenge()


def test_more_than_a_header_may_hold_is_not_read() -> None:
    assert bearer_challenge("Bearer " + "a=b," * MAX_HEADER + "scope=late") == Challenge()
    assert bearer_challenge("," * 10 * MAX_HEADER) is None
    assert bearer_challenge('Bearer a="' + "\\" * 10 * MAX_HEADER) == Challenge()


def test_scopes_are_joined_in_order_and_once_each() -> None:
    assert union("a b", None, "", "b c") == "a b c"
    assert union(None, "") is None
