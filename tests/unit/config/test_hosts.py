"""Hosts are judged by name and by address, whatever form they are written in."""

import pytest

from daemon.config.hosts import HostRefusal, HostRules, HostVerdict, pattern_problem
from tests.unit.cases import cases

DENIED, IS_AN_ADDRESS = HostRefusal.DENIED, HostRefusal.IS_AN_ADDRESS
INTERNAL = "db.internal"


@cases("allowed", "host", "refusal")
def test_a_name_is_allowed_by_itself_or_by_a_pattern(allowed: str, host: str, refusal: str | None) -> None:
    assert HostRules([allowed]).verdict(host).refusal == refusal


def test_a_denial_wins() -> None:
    for denied in ("api.example.com", "*.example.com", "API.example.com.", "*"):
        rules = HostRules(["*", "api.example.com", "*.example.com"], [denied])
        assert rules.verdict("api.example.com") == HostVerdict("api.example.com", DENIED), denied


def test_an_address_as_only_c_libraries_read_it_is_never_allowed() -> None:
    for host in ("0x7f.1", "0177.0.0.1", "2130706433", "0x7f000001", "127.1"):
        assert HostRules(["*", "127.0.0.1"]).verdict(host) == HostVerdict(host, IS_AN_ADDRESS)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1.", "\uff11\uff12\uff17.0.0.1"])
def test_an_address_in_any_form_is_allowed_only_if_that_address_is_named(host: str) -> None:
    assert HostRules(["*"]).verdict(host) == HostVerdict("127.0.0.1", IS_AN_ADDRESS)
    assert HostRules(["127.0.0.2"]).verdict(host).refusal is IS_AN_ADDRESS
    assert HostRules(["127.0.0.1"]).verdict(host) == HostVerdict("127.0.0.1")
    assert HostRules(["127.0.0.1"], ["*"]).verdict(host).refusal is DENIED


def test_an_ipv6_address_is_compared_as_an_address() -> None:
    assert HostRules(["*", "127.0.0.1"]).verdict("[::ffff:127.0.0.1]").refusal is IS_AN_ADDRESS
    assert HostRules(["*"]).verdict("[2606:4700::1]") == HostVerdict("2606:4700::1", IS_AN_ADDRESS)
    assert HostRules(["2606:4700::1"]).verdict("[2606:4700:0:0:0:0:0:1]") == HostVerdict("2606:4700::1")
    assert HostRules(["[2606:4700::1]"]).verdict("2606:4700::1") == HostVerdict("2606:4700::1")


def test_a_public_address_needs_no_more_than_the_verdict() -> None:
    for address in ("8.8.8.8", "2606:4700::1", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"):
        assert HostRules(["*"]).missing("api.example.com", address) == "", address


@cases("address")
def test_a_private_address_needs_the_name_of_its_host(address: str) -> None:
    for host in (INTERNAL, "git.example.com"):
        assert HostRules(["*", "*.internal", "*.example.com"]).missing(host, address) == host
        assert HostRules([host]).missing(host, address) == ""
        assert HostRules(["*", address]).missing(host, address) == ""


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_loopback_needs_a_name_that_nobody_can_register_or_the_address(address: str) -> None:
    for host in ("localhost", "api.localhost", INTERNAL, "machine"):
        assert HostRules(["*", "*.localhost", "*.internal"]).missing(host, address) == host
        assert HostRules([host]).missing(host, address) == ""
    needed = HostRules(["api.example.com"]).missing("api.example.com", address)
    assert HostRules(["api.example.com"]).verdict(needed).refusal is IS_AN_ADDRESS
    assert HostRules(["api.example.com", needed]).missing("api.example.com", address) == ""


@cases("address")
def test_metadata_and_other_special_addresses_need_the_address_itself(address: str) -> None:
    assert HostRules(["*", INTERNAL]).missing(INTERNAL, address) == address
    assert HostRules(["*", address]).missing(INTERNAL, address) == ""


def test_the_interface_of_an_address_changes_nothing() -> None:
    assert HostRules([INTERNAL]).missing(INTERNAL, "fe80::1%eth0") == "fe80::1"


@cases("text", "told")
def test_an_unsound_pattern_is_told_with_what_to_write_and_never_made_a_rule(text: str, told: str) -> None:
    assert told in pattern_problem(text)
    for key in ("allowed", "denied"):
        with pytest.raises(ValueError, match=r"write|name each"):
            HostRules(**{key: [text]})


def test_a_registry_may_have_a_mirror_in_a_private_network_and_nowhere_else() -> None:
    rules = HostRules(["*", "pypi.org"])
    assert [rules.missing("pypi.org", each) for each in ("10.0.0.5", "203.0.113.80")] == ["", ""]
    for address in ("127.0.0.1", "169.254.169.254", "0.0.0.0", "::1", "100.100.100.200"):
        assert rules.missing("pypi.org", address) == address
    assert rules.missing("example.org", "203.0.113.80") != ""
