"""What is made of a server's error: the secrets that it quotes go, and who is at fault is told apart."""

from __future__ import annotations

import pytest
from msgspec import Raw

from daemon.clients.server_requests import MISSING_CAPABILITY, concerns_client, read_refusal
from daemon.safety.redact import CUT, HIDDEN, SHOWN, Redactor
from daemon.wire.envelope import INVALID_PARAMS


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ('{"key":"s3cret"}', {"key": HIDDEN}),
        (r'{"key":"s3\u0063ret"}', {"key": HIDDEN}),
        # What looks like a credential may take a bracket with it: then it is shown as text.
        ('{"token":5}', f'{{"token":{HIDDEN}'),
        ("[" + "0," * SHOWN + "0]", "[" + ("0," * SHOWN)[: SHOWN - 1] + CUT),
    ],
)
def test_the_data_of_an_error_are_shown_without_secrets_and_as_text_if_they_are_cut(
    data: str, shown: object
) -> None:
    said = read_refusal(b'{"code":1,"message":"m","data":%b}' % data.encode(), Redactor(["s3cret"]))
    assert said.details["upstream"] == {"code": 1, "message": "m", "data": shown}


def test_a_message_as_long_as_may_be_is_cut_and_says_so() -> None:
    said = read_refusal(b'{"code":1,"message":"%b"}' % (b"s3cret " * 1_000_000), Redactor(["s3cret"]))
    assert "s3c" not in said.message
    assert len(said.message) < 2 * SHOWN
    assert f"{CUT} (1)" in said.message


@pytest.mark.parametrize(
    ("code", "others", "concerns"),
    [
        (MISSING_CAPABILITY, {}, True),
        (INVALID_PARAMS, {"requestState": Raw(b'"s"')}, True),
        (INVALID_PARAMS, {"inputResponses": Raw(b"{}")}, False),
        (INVALID_PARAMS, {}, False),
        (-32603, {"requestState": Raw(b'"s"')}, False),
    ],
)
def test_only_what_the_client_itself_can_mend_is_an_error_of_its_request(
    code: int, others: dict[str, Raw], concerns: bool
) -> None:
    assert concerns_client(b'{"code":%d,"message":"m"}' % code, others) is concerns
