"""Addresses as configurations write them."""

from __future__ import annotations

from daemon.config.listen import is_loopback, numeric


def test_only_names_that_cannot_be_made_to_mean_another_machine_are_loopback() -> None:
    assert is_loopback("localhost")
    assert is_loopback("::1")
    assert not is_loopback("rebound.example.com")
    assert not is_loopback("::1%lo")


def test_an_address_of_ipv4_is_the_same_within_one_of_ipv6() -> None:
    assert numeric("::ffff:10.0.0.1") == numeric("10.0.0.1") is not None
    assert str(numeric("2001:db8::1")) == "2001:db8::1"
    assert numeric("localhost") is None
    assert numeric("") is None
