"""Over HTTP: real ports, who has them, and who can read the tokens."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest

from daemon.checks.addresses import http_port as check
from daemon.checks.advice import advice
from daemon.checks.configuration import secrets
from daemon.checks.findings import Level, Running
from daemon.host.tokens import Kept, TokenFile
from daemon.processes.proc import port_holders
from tests.unit.checks.scenes import NOBODY, House, only
from tests.waiting import PATIENCE

TOKEN = "0123456789abcdef-of-ci"
LISTENER = (
    "import socket, sys; s = socket.create_server(('127.0.0.1', 0));"
    " print(s.getsockname()[1], flush=True); sys.stdin.read()"
)


def configure(house: House, **http: Any) -> None:
    house.write({"listen": {"http": http}})


def free() -> str:
    """An address that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def holder(*name: str) -> Iterator[tuple[int, int]]:
    """Pid and port of a program that listens."""
    with subprocess.Popen(
        [sys.executable, "-c", LISTENER, *name], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            yield child.pid, int(child.stdout.readline())
        finally:
            child.stdin.close()
            child.wait(PATIENCE)


def causes(house: House) -> list[str]:
    return [each.cause for each in check(house.look())]


def test_a_free_address_is_fine_and_stays_free(house: House) -> None:
    address = free()
    configure(house, address=address)
    assert causes(house) == ["http-free"] == causes(house)


def test_an_address_that_another_program_has_is_a_fault_that_names_it(house: House) -> None:
    with holder() as (pid, port):
        assert port_holders(port) == [pid]
        configure(house, address=f"localhost:{port}")
        said = only(check(house.look()), Level.FAULT)
    assert f"127.0.0.1:{port}" in said
    assert f"(pid {pid})" in said
    assert port_holders(port) == []


def test_an_address_that_the_daemon_has_is_fine(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    with holder("mcpd", "run") as (pid, port), house.daemon(pid=pid):
        configure(house, address=f"127.0.0.1:{port}")
        assert causes(house) == ["http-served"]
        # A daemon shows its descriptors to nobody.
        monkeypatch.setattr("daemon.processes.proc.port_holders", lambda _port: [])
        assert causes(house) == ["http-served"]


def test_a_daemon_that_does_not_serve_what_is_configured_is_a_warning(house: House) -> None:
    configure(house, address=free())
    with house.daemon():
        assert "`mcpd start --restart`" in only(check(house.look()), Level.WARNING)


def test_an_address_of_another_machine_cannot_be_bound(house: House) -> None:
    configure(house, address="192.0.2.1:7337", tokens=TOKEN, trustedProxies=["10.0.0.1"], hosts=["box"])
    assert causes(house) == ["http-address-impossible", "http-beyond-loopback"]


def test_an_address_that_others_reach_is_noted_and_wants_names(house: House) -> None:
    port = free().partition(":")[2]
    configure(house, address=f"0.0.0.0:{port}", tokens=TOKEN, trustedProxies=["10.0.0.1"])
    assert causes(house) == ["http-free", "http-beyond-loopback", "http-without-names"]
    config = house.look().config
    assert config is not None
    assert [fault.path for fault in advice(config, {})] == ["$.listen.http.hosts"]


def test_what_is_wrong_with_tls_is_told_by_check_as_by_doctor(house: House) -> None:
    configure(house, address=free(), tls={"cert": "c.pem", "key": "k.pem"})
    assert causes(house) == ["http-free", "tls-file-unreadable", "tls-file-unreadable"]
    config = house.look().config
    assert config is not None
    found = {fault.path: fault.message for fault in advice(config, {})}
    assert found.keys() == {"$.listen.http.tls.cert", "$.listen.http.tls.key"}
    assert str(house.config.parent / "c.pem") in found["$.listen.http.tls.cert"]


def test_a_file_of_tokens_that_others_can_read_or_have_or_that_is_damaged_is_a_fault(house: House) -> None:
    configure(house, address=free())
    file = TokenFile(house.state)
    file.write(Kept())
    assert causes(house) == ["http-free"]
    for mode in (0o640, 0o604, 0o602):
        file.path.chmod(mode)
        said = only(check(house.look()), Level.FAULT)
        assert f"chmod 600 {file.path}" in said
    file.path.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(file.path, NOBODY, NOBODY)
        assert f"uid {NOBODY}" in only(check(house.look()), Level.FAULT)
        os.chown(file.path, 0, 0)
    file.path.write_text("nonsense")
    assert "is damaged" in only(check(house.look()), Level.FAULT)


def test_tokens_that_wait_to_be_confirmed_are_named_with_the_command(house: House) -> None:
    configure(house, address=free())
    status = {"daemon": {"doubtedTokens": ["", "ci"]}}
    running = Running(status=status, pid=os.getpid(), config=house.config)
    found = {each.cause: each for each in check(attrs.evolve(house.look(), running=running))}["tokens-doubted"]
    assert found.what == "Clients that show 2 tokens of an earlier daemon are refused."
    assert found.do.endswith("Then `mcpd token confirm --default`; `mcpd token confirm ci`.")


@pytest.mark.parametrize(
    ("tokens", "place"),
    [
        (TOKEN, "$.listen.http.tokens"),
        ([{"name": "a", "value": "${T}"}, {"name": "b", "value": TOKEN}], "$.listen.http.tokens[1].value"),
        ("${UNSET:-" + TOKEN + "}", "$.listen.http.tokens"),
    ],
)
def test_a_token_that_is_written_out_is_a_secret_in_the_file(house: House, tokens: Any, place: str) -> None:
    configure(house, tokens=tokens)
    (found,) = secrets(house.look(T="fedcba9876543210-of-ann"))
    assert (found.cause, found.data["places"]) == ("secrets-literal", place)
    house.config.chmod(0o640)
    assert [each.cause for each in secrets(house.look(T="fedcba9876543210-of-ann"))] == [
        "secrets-open-to-group"
    ]
