"""Logins without a user (`auth`): the real daemon, a real authorization server, a server that wants tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from jwt.algorithms import ECAlgorithm

from tests.e2e.harness import Daemon, running
from tests.process.authorization.serving import oidc_provider, protected_by
from tests.waiting import eventually

pytestmark = pytest.mark.e2e

SECRET = "canary-secret&+%"
BY_SECRET = {"type": "client-credentials", "clientId": "machine", "clientSecret": "${CRM_SECRET}"}


KEY = ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(scope="module")
def places() -> Iterator[tuple[str, str]]:
    """An authorization server, whose tokens last five seconds, and the server that takes them."""
    public = {**ECAlgorithm.to_jwk(KEY.public_key(), as_dict=True), "alg": "ES256", "use": "sig"}
    with (
        oidc_provider(ttl=5, key=public) as issuer,
        protected_by(issuer, f"{issuer}/token/introspection") as url,
    ):
        yield issuer, url


@contextmanager
def guarded(places: tuple[str, str], auth: dict[str, Any], environ: dict[str, str]) -> Iterator[Daemon]:
    """A daemon with that server."""
    issuer, url = places
    servers = {"crm": {"url": url, "auth": {**auth, "issuer": issuer}}}
    with running({"mcpServers": servers}, environ, level="DEBUG") as daemon:
        yield daemon


def called(daemon: Daemon) -> str:
    answer = daemon.ask("call", server="crm", tool="secret", arguments={})
    return str(answer["content"][0]["text"])


def of_server(daemon: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = daemon.ask("status")["servers"]["crm"]
    return found


def logins(daemon: Daemon) -> int:
    return daemon.said().count("mcpd has logged in")


def test_a_daemon_logs_in_with_a_secret_and_again_before_its_token_ends_and_nobody_is_asked(
    places: tuple[str, str],
) -> None:
    with guarded(places, BY_SECRET, {"CRM_SECRET": SECRET}) as daemon:
        daemon.ready("crm")

        def renewed() -> bool:
            assert called(daemon) == "it was you"
            return logins(daemon) > 1

        eventually(renewed, daemon.said)
        assert of_server(daemon)["restarts"] == 0
        refused = daemon.outcome("login", "crm")
        assert refused.returncode == 1
        assert (
            "server crm needs no login by a user: mcpd logs in by itself, with `auth` of the entry"
            in refused.stderr
        )
        everything = daemon.said() + json.dumps([daemon.ask("status"), daemon.ask("events")])
        assert SECRET not in everything
        assert not (daemon.state.parent / "logins").exists()
        daemon.restart()
        daemon.ready("crm")
        assert called(daemon) == "it was you"


def test_a_daemon_logs_in_with_a_key_that_only_its_file_holds(places: tuple[str, str]) -> None:
    pem = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    auth = {"type": "client-credentials", "clientId": "machine-with-key", "privateKey": "${KEY}"}
    with guarded(places, auth, {"KEY": pem}) as daemon:
        daemon.ready("crm")
        assert called(daemon) == "it was you"
        assert pem.splitlines()[1] not in daemon.said() + json.dumps(daemon.ask("status"))


def test_a_wrong_secret_is_tried_once_and_said_with_what_to_do_and_a_right_one_takes_effect(
    places: tuple[str, str],
) -> None:
    with guarded(places, {**BY_SECRET, "clientSecret": "${file:secret}"}, {}) as daemon:

        def parked() -> dict[str, Any]:
            found = of_server(daemon)
            return found if found["state"] in {"needs_auth", "failed"} else {}

        found = eventually(parked, daemon.said)
        # The file is missing: that is a fault of the entry.
        assert found["cause"] == "configuration"
        (daemon.directory / "secret").write_text("canary-wrong")
        daemon.run("reload", check=None)
        found = eventually(
            lambda: parked() if of_server(daemon)["cause"] == "login-refused" else {}, daemon.said
        )
        assert (found["state"], found["attempt"]) == ("needs_auth", 1)
        assert "gave no token (HTTP 401, invalid_client): correct clientId" in found["reason"]
        assert found["nextRetryInMs"] > 200_000
        refused = json.dumps(daemon.ask("call", server="crm", tool="secret", arguments={}))
        assert "login-refused" in refused
        assert "mcpd login" not in refused
        (daemon.directory / "secret").write_text(SECRET)
        daemon.run("reload", check=None)
        daemon.ready("crm")
        assert called(daemon) == "it was you"
        assert "canary" not in daemon.said() + json.dumps(daemon.ask("events"))
