"""Who may come in over HTTP: by which names, from which pages, with which tokens, and how soon again."""

import contextlib
from http import HTTPStatus
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.clients.client import Principal
from daemon.clients.doors.http import admission
from daemon.clients.doors.http.reading import Head, Refusal
from daemon.counting.tally import HTTP_REFUSALS
from daemon.safety.redact import Redactor
from tests.unit.cases import cases
from tests.unit.clients.doors.http.admissions import ANN, CI, NOBODY, Hall, bearing, hall, head

OPEN: dict[str, Any] = {"address": "0.0.0.0:7337"}
STRANGER = "203.0.113.7"


def refused(place: Hall, request: Head) -> Refusal:
    """How a request is refused."""

    def enter() -> None:
        place.admission.greet(request)
        place.admission.visitor(request)

    with pytest.raises(Refusal) as caught:
        enter()
    return caught.value


@cases("host")
def test_an_address_localhost_and_a_configured_name_are_ours(host: str) -> None:
    hall(hosts=("MCP.example.ORG", "box")).admission.greet(head(host=host))


@cases("host")
def test_any_other_host_is_refused_before_the_token_is_looked_at(host: str) -> None:
    place = hall(hosts=("mcp.example.org",))
    refusal = refused(place, bearing(ANN.value, host=host))
    assert refusal.status is HTTPStatus.FORBIDDEN
    assert "listen.http.hosts" in refusal.text
    assert not host or host not in refusal.text
    assert place.counted == {"host": 1}


@pytest.mark.parametrize("origin", ["https://app.example", "HTTPS://APP.example:443", "vscode-webview://0a1b"])
def test_a_page_that_is_configured_may_come_in_anywhere(origin: str) -> None:
    for listen in (dict[str, Any](), OPEN):
        place = hall(origins=("https://App.example:443", "vscode-webview://0a1b"), **listen)
        place.admission.greet(head(origin=origin))
        assert place.admission.cors(head(origin=origin))["Access-Control-Allow-Origin"] == origin
        assert place.admission.cors(head()) == {}, "who sends no origin is no page"


@pytest.mark.parametrize("origin", ["http://localhost:6274", "https://127.0.0.1", "http://[::1]:5173"])
def test_a_page_of_this_machine_may_come_in_where_only_this_machine_does(origin: str) -> None:
    hall().admission.greet(head(origin=origin))
    assert refused(hall(**OPEN), head(origin=origin)).status is HTTPStatus.FORBIDDEN


@cases("origin")
def test_any_other_page_is_refused_and_gets_no_header_that_lets_it_read_why(origin: str) -> None:
    place = hall(origins=("https://app.example",))
    request = bearing(ANN.value, origin=origin)
    refusal = refused(place, request)
    assert (refusal.status, place.counted) == (HTTPStatus.FORBIDDEN, {"origin": 1})
    assert place.admission.cors(request) == {}
    assert "listen.http.origins" in refusal.text


def test_a_token_says_who_comes_and_what_is_his() -> None:
    place = hall()
    found = place.admission.visitor(bearing(CI.value))
    assert found == Principal(owner="token ci: ", token="ci", profiles=("reader", "default"), workspaces=())
    assert found.own_key("k") == "token ci: k"
    alone = hall(tokens=NOBODY).admission.visitor(bearing(NOBODY))
    assert alone == Principal()
    assert not place.counted


@pytest.mark.parametrize("header", ["bearer {}", "BEARER {}", "Bearer  {} "])
def test_the_word_before_a_token_is_read_as_the_standard_says(header: str) -> None:
    assert hall().admission.visitor(head(authorization=header.format(ANN.value))).token == "ann"


@cases("header")
def test_anything_else_is_a_wrong_token(header: str) -> None:
    place = hall()
    refusal = refused(place, head(authorization=header.replace("{}", ANN.value)))
    assert refusal.status is HTTPStatus.UNAUTHORIZED
    assert place.counted == {"token_wrong": 1}


def test_no_token_and_a_wrong_one_are_answered_alike() -> None:
    place = hall()
    none, wrong = refused(place, head()), refused(place, bearing("wrong-0123456789ab"))
    assert (none.status, none.text, dict(none.headers)) == (wrong.status, wrong.text, dict(wrong.headers))
    assert none.headers == {"WWW-Authenticate": "Bearer"}
    assert none.text == admission.WANTED.format(
        "`mcpd token new NAME` makes one besides those in listen.http.tokens"
    )
    assert Redactor(())(admission.WANTED) == admission.WANTED
    assert place.counted == {"token_missing": 1, "token_wrong": 1}


def test_who_shows_wrong_tokens_is_answered_later_and_later_and_others_are_not() -> None:
    place = hall()
    delays = [refused(place, bearing("wrong", peer=STRANGER)).delay for _ in range(8)]
    assert delays == [0.0, 0.25, 0.5, 1.0, 2.0, 4.0, admission.LONGEST_DELAY, admission.LONGEST_DELAY]
    assert refused(place, bearing("wrong", peer="203.0.113.8")).delay == 0.0
    assert place.admission.visitor(bearing(ANN.value, peer=STRANGER)).token == "ann"


def test_who_shows_no_token_first_is_not_slowed() -> None:
    place = hall()
    assert {refused(place, head(peer=STRANGER)).delay for _ in range(20)} == {0.0}
    assert refused(place, bearing("wrong", peer=STRANGER)).delay == 0.0
    assert refused(place, bearing("wrong", peer=STRANGER)).delay == admission.FIRST_DELAY


def test_every_reason_is_one_that_is_counted() -> None:
    place = hall()
    for request in (head(host="x"), head(origin="x"), head(), bearing("x")):
        refused(place, request)
    with pytest.raises(Refusal):
        place.admission.profile(Principal(profiles=("a",)), "b")
    place.admission.crowded(head(), "nobody has a place")
    of_connections = {"server", "gone"}
    assert place.counted.keys() | of_connections == HTTP_REFUSALS


PROFILES = ("reader", "default")


@cases("profiles", "wanted", "given")
def test_a_request_gets_the_profile_of_its_token(profiles: Any, wanted: str | None, given: str) -> None:
    assert hall().admission.profile(Principal(profiles=profiles), wanted) == given


@pytest.mark.parametrize("wanted", ["writer", "unheard-of", "", "Reader"])
def test_a_profile_that_is_not_for_a_token_is_refused_whether_or_not_it_exists(wanted: str) -> None:
    place = hall()
    with pytest.raises(Refusal) as caught:
        place.admission.profile(Principal(profiles=PROFILES), wanted)
    assert caught.value.status is HTTPStatus.FORBIDDEN
    assert caught.value.text == "this token is not for that profile. It is for: reader, default\n"
    with pytest.raises(Refusal):
        place.admission.profile(Principal(profiles=()), None)


PROXIES: dict[str, Any] = {"trusted_proxies": ("10.0.0.0/8", "2001:db8:1::/48")}


@cases("peer", "forwarded", "client")
def test_behind_proxies_the_client_is_the_last_they_vouch_for(peer: str, forwarded: str, client: str) -> None:
    headers = {"x_forwarded_for": forwarded} if forwarded else {}
    assert hall(**PROXIES).admission.address(head(peer=peer, **headers)) == client


@cases("peer", "told", "private")
def test_only_proxies_say_that_a_client_spoke_tls(peer: str, told: str, private: bool) -> None:
    asked = head(peer=peer, x_forwarded_proto=told)
    assert hall(**PROXIES).admission.is_private(asked) is private
    assert not hall().admission.is_private(asked)


def test_behind_proxies_each_client_is_slowed_for_itself() -> None:
    place = hall(**PROXIES)
    for _ in range(5):
        refused(place, bearing("wrong", peer="10.0.0.1", x_forwarded_for="1.1.1.1, 198.51.100.1"))
    assert refused(place, bearing("wrong", peer="10.0.0.1", x_forwarded_for="198.51.100.2")).delay == 0.0
    again = bearing("wrong", peer="10.0.0.1", x_forwarded_for="9.9.9.9, 198.51.100.1")
    assert refused(place, again).delay == 4.0, "what a client writes before it makes it nobody else"


def test_the_log_says_once_a_minute_who_was_refused_and_never_the_token(log: list[str]) -> None:
    place = hall()
    for number in range(5):
        refused(place, bearing(f"{ANN.value}-{number}", peer=STRANGER))
    place.now += 60
    refused(place, head(peer=STRANGER, host="evil\x1b.com" + "x" * 1000))
    first, second = log
    assert first.strip() == f"WARNING http: refused {STRANGER}: a wrong token"
    assert "(and 4 refusals since the last such line)" in second
    assert "\x1b" not in second
    assert len(second) < 300
    assert not any(ANN.value in line for line in log)


@cases("address", "taken")
def test_what_the_listener_is_bound_to_decides(address: str, taken: bool) -> None:
    place = hall(address=address)
    request = head(origin="http://localhost:1")
    if taken:
        place.admission.greet(request)
    else:
        refused(place, request)


ODD = st.text(max_size=40) | st.sampled_from(
    ["localhost", "null", "http://[::1", "Bearer ", "::1%x", "1.1.1.1,", ",", "[", "]:1", "http://:80", "a://"]
)
NAMES = ("host", "origin", "authorization", "x-forwarded-for", "access-control-request-headers")


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), ODD), ODD, st.sampled_from(["OPTIONS", "POST"]))
def test_whatever_a_head_says_it_is_let_in_or_refused(headers: dict[str, str], peer: str, method: str) -> None:
    asked = {"access-control-request-method": "POST"}
    request = Head(method=method, path="/mcp", headers={**asked, **headers}, peer=peer)
    for place in (hall(**PROXIES), hall(**OPEN, trusted_proxies=("::/1", "0.0.0.0/1"))):
        with contextlib.suppress(Refusal):
            place.admission.greet(request)
        with contextlib.suppress(Refusal):
            place.admission.visitor(request)
        assert all(value.isprintable() for value in place.admission.cors(request).values())
        place.admission.address(request)


def test_who_stays_away_long_enough_begins_anew() -> None:
    place, wrong = hall(), bearing("wrong", peer=STRANGER)
    for _ in range(9):
        refused(place, wrong)
    for seconds, delay in (
        (admission.FORGET_SECONDS, admission.LONGEST_DELAY),
        (admission.FORGET_SECONDS + 1, 0.0),
    ):
        place.now += seconds
        assert refused(place, wrong).delay == delay


@cases("one", "other", "same")
def test_whoever_has_an_address_of_ipv6_has_its_neighbours(one: str, other: str, same: bool) -> None:
    assert (admission.neighbourhood(one) == admission.neighbourhood(other)) is same


def test_so_many_addresses_are_remembered_and_the_latest_stay() -> None:
    attempts = admission.Attempts(lambda: 50.0)
    for number in range(admission.MAX_ADDRESSES + 100):
        attempts.failed(f"10.0.{number // 250}.{number % 250}")
    assert len(attempts) == admission.MAX_ADDRESSES
    assert attempts.failed("10.0.0.200") == admission.FIRST_DELAY
    assert attempts.failed("10.0.0.1") == 0.0


PAGE = "https://app.example"


@cases("one", "other", "same")
def test_origins_are_compared_as_browsers_write_them(one: str, other: str, same: bool) -> None:
    assert (admission.origin_of(one) == admission.origin_of(other)) is same


def test_a_page_may_read_the_response_and_the_session_in_it() -> None:
    told = admission.allowances(head(origin=PAGE), PAGE)
    assert told["Access-Control-Allow-Origin"] == PAGE
    assert "Mcp-Session-Id" in told["Access-Control-Expose-Headers"]
    assert told["Vary"] == "Origin"
    assert "Access-Control-Allow-Credentials" not in told
    assert "Access-Control-Allow-Methods" not in told


def preflight(**headers: str) -> dict[str, str]:
    request = head(method="OPTIONS", origin=PAGE, access_control_request_method="POST", **headers)
    assert admission.is_preflight(request)
    return dict(admission.allowances(request, PAGE))


def test_a_preflight_is_told_what_a_page_may_send_and_other_options_are_none() -> None:
    told = preflight(access_control_request_headers="Authorization, Mcp-Param-Region, Mcp-Session-Id")
    assert told["Access-Control-Allow-Methods"] == "GET, POST, DELETE"
    assert set(told["Access-Control-Allow-Headers"].split(", ")) == {*admission.SENT, "mcp-param-region"}
    assert told["Access-Control-Max-Age"] == str(admission.MAX_AGE)
    key = "Access-Control-Allow-Private-Network"
    assert key not in preflight()
    assert preflight(access_control_request_private_network="true")[key] == "true"
    assert not admission.is_preflight(head(method="OPTIONS", origin=PAGE))
    assert not admission.is_preflight(head(access_control_request_method="POST"))


@pytest.mark.parametrize("asked", ["x-forwarded-for", "mcp-param-a b", "mcp-param-", "mcp-param-ü", "", ",,"])
def test_headers_that_no_page_needs_are_not_allowed(asked: str) -> None:
    told = preflight(access_control_request_headers=asked)
    assert set(told["Access-Control-Allow-Headers"].split(", ")) == admission.SENT
