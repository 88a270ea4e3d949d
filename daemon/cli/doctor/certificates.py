"""Checks the certificate of the HTTP listener and its key: are they there, do they fit, for how long."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.cli.doctor.findings import found

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daemon.cli.doctor.findings import Finding
    from daemon.config.listen import Tls

SOON_DAYS = 14
"""Days before the end at which to warn: what renews certificates by itself does so long before."""

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"

_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
"""Tags of ASN.1 (X.690)."""

_CENTURY = 50
"""Years with two digits are in this century below it, in the last one from it on (RFC 5280 §4.1.2.5.1)."""


def check(tls: Tls, now: float) -> Iterator[Finding]:
    """Findings about `listen.http.tls`; the data of each has the `key` that it is about.

    Args:
        tls: the section.
        now: seconds since the epoch.
    """
    problems = [*_unreadable("cert", tls.cert), *_unreadable("key", tls.key)]
    yield from problems or _loaded(tls, now)


def _unreadable(key: str, path: str) -> Iterator[Finding]:
    try:
        with Path(path).open("rb"):
            return
    except OSError as error:
        yield found("tls-file-unreadable", key=key, path=path, problem=error.strerror)


def _loaded(tls: Tls, now: float) -> Iterator[Finding]:
    try:
        # The password keeps OpenSSL from asking for one at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.cert, tls.key, password="-")  # noqa: S106
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            yield found("tls-does-not-fit", key="key", cert=tls.cert, path=tls.key)
        else:
            yield found(
                "tls-unusable", key="cert", cert=tls.cert, path=tls.key, problem=error.reason or "no PEM"
            )
        return
    validity = validity_of(Path(tls.cert).read_text(encoding="ascii", errors="replace"))
    if validity is None:
        return
    begin, end = validity
    at = datetime.fromtimestamp(now, UTC)
    if at < begin:
        yield found("tls-not-yet-valid", key="cert", path=tls.cert, date=f"{begin:%Y-%m-%d}")
    elif at >= end:
        yield found("tls-expired", key="cert", path=tls.cert, date=f"{end:%Y-%m-%d}")
    elif (end - at).days < SOON_DAYS:
        yield found("tls-expires-soon", key="cert", path=tls.cert, date=f"{end:%Y-%m-%d}")


def validity_of(pem: str) -> tuple[datetime, datetime] | None:
    """From when until when the first certificate of a text is good; None if it cannot be told.

    The standard library decodes a certificate only after a handshake in which it was accepted.
    """
    try:
        begin = pem.index(_BEGIN)
        der = ssl.PEM_cert_to_DER_cert(pem[begin : pem.index(_END) + len(_END)])
        certificate = _content(der, 0)
        parts = list(_parts(der, *_content(der, certificate[0])))
        # RFC 5280 §4.1: version (if it is not the first one), serial number, algorithm, issuer, validity.
        validity = parts[4 if parts[0][0] == _VERSION else 3]
        since, until = (_time(tag, der[start:end]) for tag, start, end in _parts(der, validity[1], validity[2]))
    except (ValueError, IndexError):
        return None
    return since, until


def _content(der: bytes, at: int) -> tuple[int, int]:
    """Where the content of the value that begins at a place begins and ends (X.690 §8.1.3)."""
    length = der[at + 1]
    start = at + 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[at + 2 : start])
    return start, start + length


def _parts(der: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Tag, beginning and end of each value within a value."""
    while at < end:
        start, stop = _content(der, at)
        yield der[at], start, stop
        at = stop


def _time(tag: int, text: bytes) -> datetime:
    written = text.decode("ascii")
    if tag == _UTC_TIME:
        written = f"{'20' if int(written[:2]) < _CENTURY else '19'}{written}"
    return datetime.strptime(written, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
