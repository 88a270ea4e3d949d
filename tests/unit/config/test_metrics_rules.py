"""Metrics are served to this machine only, at an address that can be meant."""

from __future__ import annotations

import pytest

from daemon.config.metrics_rules import SUGGESTED, is_loopback, metrics_faults, split_authority
from daemon.config.model import Metrics
from daemon.safety.redact import Redactor

HERE = "$.metrics"


def faults(listen: str | None) -> list[tuple[str, str]]:
    return [(fault.path, fault.message) for fault in metrics_faults(Metrics(listen=listen), HERE)]


@pytest.mark.parametrize(
    "listen",
    [
        None,
        SUGGESTED,
        "localhost:1",
        "LocalHost:9464",
        "127.8.9.10:65535",
        "[::1]:9464",
        "[0:0:0:0:0:0:0:1]:80",
    ],
)
def test_loopback_with_a_port_is_right(listen: str | None) -> None:
    assert faults(listen) == []


@pytest.mark.parametrize(
    "listen",
    [
        "",
        ":9464",
        "9464",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:0",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "127.0.0.1:+80",
        "127.0.0.1:9_464",
        "127.0.0.1:٩٤٦٤",
        " 127.0.0.1:9464",
        "127.0.0.1:9464\n",
        "::1:9464",
        "[::1]",
        "[::1]9464",
        "[localhost]:9464",
        "http://127.0.0.1:9464",
        "127.0.0.1:9464/metrics",
        "user@127.0.0.1:9464",
    ],
)
def test_what_is_no_address_with_a_port_is_a_fault_that_shows_one(listen: str) -> None:
    ((path, message),) = faults(listen)
    assert path == "$.metrics.listen"
    assert message.endswith(f"is not HOST:PORT: write {SUGGESTED}")


@pytest.mark.parametrize(
    "host",
    [
        "0.0.0.0",
        "[::]",
        "10.0.0.1",
        "192.168.1.1",
        "[fe80::1]",
        "[::ffff:127.0.0.1]",
        "example.com",
        "localhost.example.com",
        "127.0.0.1.example.com",
        "128.0.0.1",
        "127.1",
        "0177.0.0.1",
        "2130706433",
    ],
)
def test_what_others_can_reach_or_rename_is_a_fault(host: str) -> None:
    ((path, message),) = faults(f"{host}:9464")
    assert path == "$.metrics.listen"
    assert "is no loopback address, and metrics have no password" in message
    assert Redactor(())(message) == message, "it must not look like a credential"
    assert SUGGESTED in message


def test_a_long_word_is_not_repeated_in_full() -> None:
    ((_, message),) = faults("x" * 10_000 + ":9464")
    assert len(message) < 400


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("localhost:9464", ("localhost", 9464)),
        ("localhost", ("localhost", None)),
        ("[::1]:9464", ("::1", 9464)),
        ("[::1]", ("::1", None)),
        ("127.0.0.1:99999", ("127.0.0.1", 99999)),
        ("", (None, None)),
        ("a b", (None, None)),
        ("::1", (None, None)),
    ],
)
def test_an_authority_is_a_host_and_perhaps_a_port(text: str, parts: tuple[str | None, int | None]) -> None:
    assert split_authority(text) == parts


def test_only_names_that_cannot_be_made_to_mean_another_machine_are_loopback() -> None:
    assert is_loopback("localhost")
    assert is_loopback("::1")
    assert not is_loopback("rebound.example.com")
    assert not is_loopback("::1%lo")
