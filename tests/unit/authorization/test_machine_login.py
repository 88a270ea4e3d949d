"""One login as a process, and a login of mcpd itself: what is sent to whom, and what each refusal says."""

from __future__ import annotations

import base64
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import httpx2
import jwt
import msgspec
import pytest
import trio
import trio.testing
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from daemon.authorization import login_process, logins
from daemon.authorization.guarded_http import guarded_transport
from daemon.authorization.login import LoginFlow
from daemon.authorization.login_process import LOGIN_SECONDS, MAX_LINE, Lines, MachineLogin, serve
from daemon.authorization.logins import Answer, Failed, Login, NoLogin, NotNow, Report, Wish
from daemon.authorization.redirect import Redirect
from daemon.config.login_keys import Auth, AuthType, IdentityProvider
from tests.unit.cases import rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from daemon.authorization.logins import Login

ORIGIN = "http://127.0.0.1:9"
URL = f"{ORIGIN}/mcp"
RESOURCE, SERVER = "/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-authorization-server"
METADATA = {
    "issuer": ORIGIN,
    "authorization_endpoint": f"{ORIGIN}/authorize",
    "token_endpoint": f"{ORIGIN}/token",
}
GOOD: dict[str, Any] = {
    RESOURCE: {"resource": URL, "authorization_servers": [ORIGIN]},
    SERVER: METADATA,
    "/exchange": {"access_token": "canary-grant", "token_type": "N_A"},
    "/token": {"access_token": "canary-token", "token_type": "Bearer", "expires_in": 3600, "scope": "read"},
}
SECRET = "canary+%"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class Site:
    """A server and its authorization server, whose paths are answered so: an object, a status or an error."""

    def __init__(
        self, answers: dict[str, Any] | None = None, *, with_token: int = 200, challenge: str = ""
    ) -> None:
        self.answers, self.with_token, self.challenge = {**GOOD, **(answers or {})}, with_token, challenge
        self.sent: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.sent.append(request)
        if request.url.path == "/mcp":
            status = self.with_token if "authorization" in request.headers else 401
            return httpx2.Response(status, headers={"www-authenticate": self.challenge})
        told = self.answers.get(request.url.path, 404)
        match told:
            case Exception():
                raise told
            case httpx2.Response():
                return told
            case int():
                return httpx2.Response(told, text="canary")
        return httpx2.Response(200, json=told)

    def client(self) -> httpx2.AsyncClient:
        """A guarded client of both."""
        return httpx2.AsyncClient(transport=guarded_transport(httpx2.MockTransport(self), local=True))

    async def login(self, auth: Auth) -> Login:
        async with self.client() as client:
            return await MachineLogin(Wish(server="crm", url=URL, auth=auth), auth, client).run()

    def form(self, path: str = "/token") -> dict[str, str]:
        """What was posted there, once."""
        (request,) = [each for each in self.sent if each.url.path == path]
        return dict(parse_qsl(request.content.decode()))

    def shown(self, path: str = "/token") -> str:
        """The user and password that were shown there."""
        (request,) = [each for each in self.sent if each.url.path == path]
        return base64.b64decode(request.headers["authorization"].removeprefix("Basic ")).decode()


def by_secret(**changed: Any) -> Auth:
    given = {"type": AuthType.CLIENT_CREDENTIALS, "issuer": ORIGIN, "client_id": "me", "client_secret": SECRET}
    return Auth(**{**given, **changed})


def by_company(file: Path, secret: str | None = None) -> Auth:
    idp = IdentityProvider(token_endpoint=f"{ORIGIN}/exchange", client_id="sso", client_secret=secret)
    return by_secret(type=AuthType.ENTERPRISE_MANAGED, token_file=str(file), idp=idp, scopes=("read",))


async def refused(auth: Auth, answers: dict[str, Any] | None = None, **site: Any) -> tuple[str, bool]:
    """Why there is no login, and whether a later attempt may succeed."""
    with pytest.raises(NoLogin) as caught:
        await Site(answers, **site).login(auth)
    assert "canary" not in str(caught.value)
    return str(caught.value), isinstance(caught.value, NotNow)


async def test_a_secret_goes_to_the_configured_authorization_server_and_to_nobody_else() -> None:
    site = Site()
    login = await site.login(by_secret(scopes=("a", "b")))
    made = login.access_token, login.scope, login.issuer, login.refresh_token
    assert made == ("canary-token", "read", ORIGIN, None)
    assert (login.renew_at or 0) < (login.expires_at or 0)
    assert "canary" not in repr(login)
    assert site.form() == {"grant_type": "client_credentials", "resource": URL, "scope": "a b"}
    assert site.shown() == "me:canary%2B%25"
    others = [each for each in site.sent if each.url.path != "/token"]
    assert not [each for each in others if SECRET in each.content.decode() + repr(each.headers)]


async def test_scopes_are_those_that_the_server_names_and_the_secret_goes_where_it_is_read() -> None:
    post = {**METADATA, "token_endpoint_auth_methods_supported": ["client_secret_post"]}
    site = Site({SERVER: post}, challenge='Bearer scope="x y"')
    await site.login(by_secret())
    form = site.form()
    assert (form["scope"], form["client_id"], form["client_secret"]) == ("x y", "me", SECRET)


@pytest.mark.parametrize("configured", [ORIGIN, f"{ORIGIN}/"])
@pytest.mark.parametrize("named", [ORIGIN, f"{ORIGIN}/"])
@pytest.mark.parametrize("advertised", [ORIGIN, f"{ORIGIN}/"])
async def test_a_slash_after_the_host_makes_no_other_authorization_server(
    configured: str, named: str, advertised: str
) -> None:
    answers = {
        SERVER: {**METADATA, "issuer": named},
        RESOURCE: {"resource": URL, "authorization_servers": ["https://other.example", advertised]},
    }
    assert (await Site(answers).login(by_secret(issuer=configured))).issuer == named


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (rsa.generate_private_key(65537, 2048), "RS256"),
        (ec.generate_private_key(ec.SECP256R1()), "ES256"),
        (ec.generate_private_key(ec.SECP384R1()), "ES384"),
        (ec.generate_private_key(ec.SECP521R1()), "ES512"),
        (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
    ],
)
async def test_a_key_signs_an_assertion_for_the_issuer_and_is_not_sent(key: Any, algorithm: str) -> None:
    site = Site()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    await site.login(by_secret(client_secret=None, private_key=pem))
    form = site.form()
    assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    claims = jwt.decode(form["client_assertion"], key.public_key(), [algorithm], audience=ORIGIN)
    assert (claims["iss"], claims["sub"]) == ("me", "me")
    assert {"exp", "iat", "jti"} <= claims.keys()


@pytest.mark.parametrize(
    ("key", "form"),
    [
        (dsa.generate_private_key(2048), NoEncryption()),
        (ec.generate_private_key(ec.SECP256K1()), NoEncryption()),
        (ec.generate_private_key(ec.SECP256R1()), BestAvailableEncryption(b"word")),
        (None, NoEncryption()),
    ],
)
async def test_a_key_that_signs_no_tokens_is_refused_before_anything_is_sent_to_the_authorization_server(
    key: Any, form: Any
) -> None:
    pem = "x" if key is None else key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, form).decode()
    said, later = await refused(by_secret(client_secret=None, private_key=pem))
    assert said.startswith("privateKey ")
    assert not later


@pytest.mark.parametrize("secret", [None, "canary-idp"])
async def test_the_companys_identity_provider_gives_a_grant_which_gives_the_token(
    tmp_path: Path, secret: str | None
) -> None:
    site, file = Site(), tmp_path / "token"
    file.write_text("canary-id-token\n")
    login = await site.login(by_company(file, secret))
    assert login.access_token == "canary-token"
    form = site.form("/exchange")
    assert (form.pop("client_id", None) is None) is (secret is not None)
    assert form == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
        "audience": ORIGIN,
        "resource": URL,
        "scope": "read",
        "subject_token": "canary-id-token",
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
    }
    if secret is not None:
        assert site.shown("/exchange") == f"sso:{secret}"
    given = site.form()
    assert (given["grant_type"], given["assertion"], given["scope"]) == (JWT_BEARER, "canary-grant", "read")
    assert site.shown() == "me:canary%2B%25"


@pytest.mark.parametrize("client_id", [None, "workload"])
async def test_a_workload_shows_its_platforms_token_alone(tmp_path: Path, client_id: str | None) -> None:
    site, file = Site(), tmp_path / "token"
    file.write_text("canary-of-platform")
    auth = Auth(type=AuthType.WORKLOAD_IDENTITY, issuer=ORIGIN, client_id=client_id, token_file=str(file))
    await site.login(auth)
    named = {"client_id": client_id} if client_id else {}
    assert site.form() == {
        "grant_type": JWT_BEARER,
        "assertion": "canary-of-platform",
        "resource": URL,
        **named,
    }
    (request,) = [each for each in site.sent if each.url.path == "/token"]
    assert "authorization" not in request.headers


@pytest.mark.parametrize("content", [None, b"", b"a\nb", b"\xff", b"x" * 70_000])
async def test_a_file_without_a_token_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    said, later = await refused(by_company(file))
    assert f"tokenFile, {file}, " in said
    assert not later


@pytest.mark.parametrize(
    ("answers", "words", "later"),
    [
        *rows_of(Path(__file__), "what_fails_is_said_with_its_reason_and_whether_to_try_again"),
        (
            {"/token": httpx2.Response(401, json={"error": "invalid_client"})},
            f"{ORIGIN} gave no token (HTTP 401, invalid_client)",
            False,
        ),
        ({"/token": httpx2.ConnectError("down")}, "127.0.0.1 cannot be reached", True),
    ],
)
async def test_what_fails_is_said_with_its_reason_and_whether_to_try_again(
    answers: dict[str, Any], words: str, later: bool
) -> None:
    said, may_succeed = await refused(by_secret(), answers)
    assert words in said
    assert may_succeed is later


async def test_a_token_that_the_server_does_not_take_is_no_login() -> None:
    said, later = await refused(by_secret(), with_token=403)
    assert said.startswith(f"crm does not take the token that {ORIGIN} has given for it (HTTP 403): allow this")
    assert not later


@pytest.mark.parametrize(
    ("told", "words", "later"),
    [
        (
            httpx2.Response(400, json={"error": "invalid_grant"}),
            "gave no token (HTTP 400, invalid_grant): see that tokenFile",
            False,
        ),
        (502, "gave no token (HTTP 502)", True),
        ({"error": "canary"}, "cannot be understood", False),
    ],
)
async def test_an_identity_provider_that_gives_no_grant_is_named(
    tmp_path: Path, told: Any, words: str, later: bool
) -> None:
    (tmp_path / "token").write_text("canary-id-token")
    never = AssertionError("no token is asked for")
    said, may_succeed = await refused(by_company(tmp_path / "token"), {"/exchange": told, "/token": never})
    assert (f"{ORIGIN}/exchange" in said, words in said, may_succeed) == (True, True, later)


async def no_listener(nursery: trio.Nursery, port: int | None) -> Redirect:
    return Redirect(1)


async def said(monkeypatch: pytest.MonkeyPatch, told: bytes, run: Any, *, is_open: bool = True) -> list[Report]:
    """What a login says that is told this, where the flow itself is `run`."""
    monkeypatch.setattr(login_process, "listen", no_listener)
    monkeypatch.setattr(LoginFlow, "run", run)
    tell, stdin = trio.testing.memory_stream_one_way_pair()
    heard: list[Report] = []

    async def say(message: Report) -> None:
        heard.append(message)

    await tell.send_all(told)
    if not is_open:
        tell.close()
    await serve(Lines(stdin), say)
    return heard


def wish(tmp_path: Path, **changed: Any) -> bytes:
    wished = Wish(server="notion", url="https://mcp.example/mcp", directory=str(tmp_path), **changed)
    return msgspec.json.encode(wished) + b"\n"


async def forever(flow: LoginFlow) -> Login:
    await trio.sleep_forever()
    raise AssertionError


async def test_a_login_that_nobody_finishes_ends_after_ten_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    (told,) = await said(monkeypatch, wish(tmp_path), forever)
    assert told == Failed("nobody has finished the login within 10 minutes: begin again")
    assert trio.current_time() == pytest.approx(LOGIN_SECONDS, abs=1)


ANSWER = msgspec.json.encode(Answer("x")) + b"\n"


@pytest.mark.parametrize(
    "told", [wish(Path("/s")), b"", b"{}\n", b"canary\n", b"\xff\n", ANSWER, b"x" * (MAX_LINE + 9)]
)
async def test_without_a_wish_or_once_stdin_has_ended_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, told: bytes
) -> None:
    assert await said(monkeypatch, told, forever, is_open=False) == []


async def test_the_secret_service_without_its_library_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ImportError

    monkeypatch.setattr(logins, "logins_in", missing)
    (told,) = await said(monkeypatch, wish(tmp_path, secret_service=True), forever)
    assert told == Failed(
        "logins in the Secret Service need the extra: pip install 'mcpd-supervisor[secret-service]'"
    )


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (NoLogin("because"), "because"),
        (KeyError("canary"), "internal error in mcpd (KeyError): please report it"),
    ],
)
async def test_a_reason_is_said_as_it_is_and_a_mistake_of_ours_without_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    async def failing(flow: LoginFlow) -> Login:
        raise error

    assert await said(monkeypatch, wish(tmp_path), failing) == [Failed(message)]


async def test_messages_may_come_in_pieces_and_several_at_once() -> None:
    tell, stdin = trio.testing.memory_stream_one_way_pair()
    lines = Lines(stdin)
    encoded = b"".join(msgspec.json.encode(Answer(url)) + b"\n" for url in ("a", "b"))
    async with trio.open_nursery() as nursery:
        for piece in (encoded[:5], encoded[5:]):
            nursery.start_soon(partial(tell.send_all, piece))
            await trio.testing.wait_all_tasks_blocked()
        assert [await lines.next(), await lines.next()] == [Answer("a"), Answer("b")]
    tell.close()
    assert await lines.next() is None
