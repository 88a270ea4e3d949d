"""Certificates of a real authority, good and bad."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
import trustme

from daemon.checks.addresses import SOON_DAYS, certificate
from daemon.config.listen import Tls

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def issued(folder: Path, *, begin: datetime = NOW - DAY, end: datetime = NOW + 90 * DAY) -> Tls:
    """A certificate with its key."""
    made = trustme.CA().issue_cert("mcp.example.org", not_before=begin, not_after=end)
    folder.mkdir()
    made.private_key_pem.write_to_path(folder / "key.pem")
    for part in made.cert_chain_pems:
        part.write_to_path(folder / "cert.pem", append=True)
    return Tls(cert=str(folder / "cert.pem"), key=str(folder / "key.pem"))


def causes(tls: Tls) -> list[tuple[str, object]]:
    """Cause and key of each finding."""
    return [(each.cause, each.key) for each in certificate(tls, NOW.timestamp())]


def test_a_good_pair_is_no_finding(tmp_path: Path) -> None:
    assert causes(issued(tmp_path / "a")) == []


@pytest.mark.parametrize(
    ("begin", "end", "cause"),
    [
        (NOW - 9 * DAY, NOW - DAY, "tls-expired"),
        (NOW - 9 * DAY, NOW, "tls-expired"),
        (NOW - 9 * DAY, NOW + DAY, "tls-expires-soon"),
        (NOW - 9 * DAY, NOW + (SOON_DAYS + 1) * DAY, None),
        (NOW + DAY, NOW + 90 * DAY, "tls-not-yet-valid"),
        (NOW - DAY, datetime(2060, 1, 1, tzinfo=UTC), None),
    ],
)
def test_a_certificate_is_good_from_its_first_to_its_last_day(
    tmp_path: Path, begin: datetime, end: datetime, cause: str | None
) -> None:
    assert causes(issued(tmp_path / "a", begin=begin, end=end)) == ([] if cause is None else [(cause, "cert")])


def test_the_day_is_that_of_the_certificate_and_not_of_its_authority(tmp_path: Path) -> None:
    tls = issued(tmp_path / "a", end=datetime(2026, 7, 4, tzinfo=UTC))
    (finding,) = certificate(tls, NOW.timestamp())
    assert finding.data["date"] == "2026-07-04"


def test_a_key_of_another_certificate_is_a_fault(tmp_path: Path) -> None:
    one, other = issued(tmp_path / "a"), issued(tmp_path / "b")
    assert causes(Tls(cert=one.cert, key=other.key)) == [("tls-does-not-fit", "key")]


def test_files_that_are_not_there_are_named_both(tmp_path: Path) -> None:
    absent = Tls(cert=str(tmp_path / "c.pem"), key=str(tmp_path / "k.pem"))
    assert causes(absent) == [("tls-file-unreadable", "cert"), ("tls-file-unreadable", "key")]


@pytest.mark.parametrize(
    "content", ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_a_file_that_holds_no_certificate_is_a_fault(tmp_path: Path, content: str) -> None:
    tls = issued(tmp_path / "a")
    (tmp_path / "a" / "cert.pem").write_text(content)
    assert causes(tls) == [("tls-unusable", "cert")]
