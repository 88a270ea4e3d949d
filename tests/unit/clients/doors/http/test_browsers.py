"""What browsers are told, and that nothing of it can be more than what was allowed."""

from __future__ import annotations

import pytest

from daemon.clients.doors.http.admission import MAX_AGE, SENT, allowances, is_preflight, origin_of
from tests.unit.cases import cases
from tests.unit.clients.doors.http.admissions import head

PAGE = "https://app.example"


@cases("one", "other", "same")
def test_origins_are_compared_as_browsers_write_them(one: str, other: str, same: bool) -> None:
    assert (origin_of(one) == origin_of(other)) is same


def test_a_page_may_read_the_response_and_the_session_in_it() -> None:
    told = allowances(head(origin=PAGE), PAGE)
    assert told["Access-Control-Allow-Origin"] == PAGE
    assert "Mcp-Session-Id" in told["Access-Control-Expose-Headers"]
    assert told["Vary"] == "Origin"
    assert "Access-Control-Allow-Credentials" not in told
    assert "Access-Control-Allow-Methods" not in told


def preflight(**headers: str) -> dict[str, str]:
    request = head(method="OPTIONS", origin=PAGE, access_control_request_method="POST", **headers)
    assert is_preflight(request)
    return dict(allowances(request, PAGE))


def test_a_preflight_is_told_the_methods_and_all_headers_of_both_eras() -> None:
    told = preflight(access_control_request_headers="Authorization, Mcp-Param-Region, Mcp-Session-Id")
    assert told["Access-Control-Allow-Methods"] == "GET, POST, DELETE"
    assert set(told["Access-Control-Allow-Headers"].split(", ")) == {*SENT, "mcp-param-region"}
    assert told["Access-Control-Max-Age"] == str(MAX_AGE)


@pytest.mark.parametrize("asked", ["x-forwarded-for", "mcp-param-a b", "mcp-param-", "mcp-param-ü", "", ",,"])
def test_headers_that_no_page_needs_are_not_allowed(asked: str) -> None:
    told = preflight(access_control_request_headers=asked)
    assert set(told["Access-Control-Allow-Headers"].split(", ")) == SENT


def test_a_page_from_elsewhere_may_reach_this_machine_only_if_it_asks() -> None:
    key = "Access-Control-Allow-Private-Network"
    assert key not in preflight()
    assert preflight(access_control_request_private_network="true")[key] == "true"


def test_options_without_a_question_is_no_preflight() -> None:
    assert not is_preflight(head(method="OPTIONS", origin=PAGE))
    assert not is_preflight(head(access_control_request_method="POST"))
