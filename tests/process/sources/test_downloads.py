"""Downloads meet servers that lie, drip and lead elsewhere: each ends with bounded bytes, in a sentence."""

import socket
import ssl
from typing import Any

import pytest
import trustme

from daemon.config.hosts import HostRules
from daemon.sources.downloads import SECONDS, fetch
from daemon.sources.offers import SourceTrouble
from tests.registries import path_of, registry
from tests.unit.cases import cases

NAME = "io.github.owner/server"
DOCUMENTS = [{"name": NAME, "version": "1.0.0"}]
LOOK_UP = socket.getaddrinfo


def leads(monkeypatch: pytest.MonkeyPatch, addresses: dict[str, list[str]]) -> list[str]:
    """Have names lead to addresses, once each: a second lookup fails; returns the names looked up so far."""
    asked: list[str] = []

    def look_up(host: Any, port: Any, *arguments: Any, **named: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        asked.append(name)
        if name not in addresses:
            return LOOK_UP(host, port, *arguments, **named)
        assert asked.count(name) == 1, f"{name} is looked up again"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port or 0)) for each in addresses[name]]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return asked


def test_a_document_of_so_many_bytes_is_fetched_from_a_host_that_the_user_names_or_the_refusal_told() -> None:
    with registry(DOCUMENTS) as running:
        url = f"{running.url}{path_of(NAME)}"
        content = fetch(url, most=1000, private=True)
        assert NAME.encode() in content
        assert running.headers.pop("user-agent").startswith("mcpd/")
        assert running.headers == {"Host": f"127.0.0.1:{running.port}", "accept-encoding": "identity"}
        assert fetch(url, most=len(content), private=True) == content
        with pytest.raises(SourceTrouble, match=f"the answer has more than {len(content) - 1} bytes"):
            fetch(url, most=len(content) - 1, private=True)
        with pytest.raises(SourceTrouble, match=r"127\.0\.0\.1:\d+ answered HTTP 404"):
            fetch(f"{running.url}{path_of('io.github.owner/other')}", most=1000, private=True)


@cases("hostile", "end")
def test_a_hostile_answer_ends(hostile: str, end: str) -> None:
    with registry(DOCUMENTS, hostile) as running, pytest.raises(SourceTrouble, match=end):
        fetch(running.url, most=100_000, private=True, seconds=0.5 if "in full" in end else SECONDS)


@cases("url", "why")
def test_an_address_that_a_stranger_may_not_name_is_refused(url: str, why: str) -> None:
    with pytest.raises(SourceTrouble, match=why) as raised:
        fetch(url, most=1000)
    assert "secret" not in str(raised.value)
    assert "\x1b" not in str(raised.value)


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["192.168.1.1"], ["8.8.8.8", "169.254.169.254"]])
def test_a_name_that_leads_to_a_private_address_is_refused(
    monkeypatch: pytest.MonkeyPatch, addresses: list[str]
) -> None:
    asked = leads(monkeypatch, {"bundles.example.com": addresses})
    with pytest.raises(SourceTrouble, match=r"bundles\.example\.com resolves to .*: mcpd fetches nothing"):
        fetch("https://bundles.example.com/x", most=1000)
    assert asked == ["bundles.example.com"]


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["127.0.0.2", "127.0.0.1"]])
def test_the_connection_goes_to_the_first_address_that_was_checked_and_can_be_reached(
    addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second lookup, which a rebinding name answers otherwise, does not happen."""
    asked = leads(monkeypatch, {"registry.example.com": addresses})
    with registry(DOCUMENTS) as running:
        url = f"http://registry.example.com:{running.port}{path_of(NAME)}"
        assert NAME.encode() in fetch(url, most=1000, private=True)
    assert asked.count("registry.example.com") == 1


def test_a_port_that_nobody_listens_on_is_named() -> None:
    with registry() as running:
        pass
    with pytest.raises(SourceTrouble, match=f"{running.url} cannot be read: Connection refused"):
        fetch(running.url, most=1000, private=True)


def certified(name: str, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """What a server needs that has a trusted certificate for a name."""
    authority = trustme.CA()
    trusted, serving = ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.configure_trust(trusted)
    authority.issue_cert(name).configure_cert(serving)
    monkeypatch.setattr(ssl, "create_default_context", lambda: trusted)
    return serving


@pytest.mark.parametrize("name", ["registry.example.com", "other.example.com"])
def test_a_certificate_is_that_of_the_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    serving = certified("registry.example.com", monkeypatch)
    leads(monkeypatch, {name: ["127.0.0.1"]})
    with registry(DOCUMENTS, tls=serving) as running:
        url = f"https://{name}:{running.port}{path_of(NAME)}"
        if name == "registry.example.com":
            assert NAME.encode() in fetch(url, most=1000, private=True)
        else:
            with pytest.raises(SourceTrouble, match=f"{name}:.* cannot be read: Hostname mismatch"):
                fetch(url, most=1000, private=True)


def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with registry() as proxy, registry(DOCUMENTS) as running:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        fetch(f"{running.url}{path_of(NAME)}", most=1000, private=True)
    assert not proxy.asked


@cases("target", "why")
def test_a_redirect_leads_to_public_hosts_alone(target: str, why: str) -> None:
    """The host that the user names is trusted with its own address, not with others."""
    with registry(DOCUMENTS, "redirects", leads_to=target) as running, pytest.raises(SourceTrouble, match=why):
        fetch(running.url, most=1000, private=True, redirects=5)
    assert len(running.asked) == 1


def test_so_many_redirects_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    leads(monkeypatch, {"files.example.com": ["127.0.0.1"]})
    monkeypatch.setattr(HostRules, "missing", lambda *_: "")  # as if the address were public
    serving = certified("files.example.com", monkeypatch)
    with registry(DOCUMENTS, tls=serving) as files, registry(hostile="redirects") as running:
        running.leads_to = f"https://files.example.com:{files.port}{path_of(NAME)}"
        assert NAME.encode() in fetch(running.url, most=1000, private=True, redirects=1)
        with pytest.raises(SourceTrouble, match="answered HTTP 302"):
            fetch(running.url, most=1000, private=True)
