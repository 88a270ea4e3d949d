"""S43 to S46: what pages of others, programs of other users and hostile servers can do to the console."""

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.clients.doors.http.local import MAX_STRANGERS
from daemon.console.access import HEADERS
from tests.e2e.harness import Daemon, free_port, scripted, serving
from tests.security.surfing import PAGES, Surfer
from tests.unit.cases import rows_of

SITE = "https://app.example"
"""A page that may use MCP here."""

TOKENS = {
    "of-a-client-0123456789": None,
    "of-a-reader-0123456789": "read",
    "of-an-operator-0123456789": "control",
}

SERVERS = {"git": scripted(tools=["log"]), "notes": scripted(tools=["x"])}

ACTIONS = [
    *(f"/ui/servers/git/{word}" for word in ("restart", "refresh", "enable", "disable", "login", "logout")),
    *("/ui/tools/switch", "/ui/tools/describe", "/ui/calls/1/cancel"),
    *(f"/ui/sessions/x/{word}" for word in ("unload", "move", "revoke")),
    *(f"/ui/settings/{word}" for word in ("lazy", "models", "model", "test", "reload")),
    "/ui/sign-out",
]


@pytest.fixture(scope="module")
def alone() -> Iterator[Daemon]:
    """A daemon whose console has a port of its own."""
    with serving({"mcpServers": SERVERS}) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def beside_mcp() -> Iterator[Daemon]:
    """A daemon whose console is where MCP is."""
    tokens: list[dict[str, str]] = [
        {"name": role or "ci", "value": value} | ({"console": role} if role else {})
        for value, role in TOKENS.items()
    ]
    http = {"address": f"127.0.0.1:{free_port()}", "tokens": tokens, "origins": [SITE]}
    with serving({"mcpServers": SERVERS, "listen": {"http": http}}) as daemon:
        yield daemon


@pytest.fixture(params=["alone", "beside_mcp"])
def served(request: pytest.FixtureRequest) -> Daemon:
    """A daemon of either kind."""
    daemon: Daemon = request.getfixturevalue(request.param)
    return daemon


def state_of(daemon: Daemon) -> list[object]:
    """What forms would change."""
    seen = daemon.ask("status")["servers"]
    return [[each["pid"], each["state"]] for each in seen.values()]


# --- coming in ----------------------------------------------------------------------------------------------


def test_links_are_for_once_and_nobody_guesses_them(served: Daemon) -> None:
    link = served.ask("ui")["link"]
    stranger = Surfer.without_session(served)
    target = link.partition(stranger.authority)[2]
    guesses = (target[:-1], f"{target}x", target.swapcase(), f"{target}&once=x", "/ui/enter", "/ui/enter?once=")
    for guess in guesses:
        assert stranger.get(guess).status in {403, 404}, guess
    assert stranger.get(target).status == 200
    assert stranger.get(target).status == 403


def test_a_cookie_that_a_browser_brings_never_becomes_a_session(served: Daemon) -> None:
    link = served.ask("ui")["link"]
    surfer = Surfer.without_session(served)
    surfer.cookie = f"mcpd_console_{surfer.authority.rpartition(':')[2]}=chosen-by-somebody-else"
    entered = surfer.get(link.partition(surfer.authority)[2])
    given = entered.headers["set-cookie"]
    assert "chosen" not in given
    assert all(word in given for word in ("HttpOnly", "SameSite=strict", "Path=/ui"))
    assert surfer.get("/ui").status == 401


def test_behind_a_proxy_that_speaks_tls_the_cookie_is_for_tls_alone() -> None:
    port, value = free_port(), "of-an-operator-0123456789"
    tokens = [{"name": "me", "value": value, "console": "control"}]
    http = {
        "address": f"127.0.0.1:{port}",
        "hosts": ["mcpd.example"],
        "trustedProxies": ["127.0.0.1"],
        "tokens": tokens,
    }
    with serving({"mcpServers": SERVERS, "listen": {"http": http}}):
        surfer = Surfer(f"127.0.0.1:{port}")
        proxied = {"host": "mcpd.example", "origin": "https://mcpd.example", "x-forwarded-proto": "https"}
        given = surfer.send("/ui/sign-in", proxied, token=value).headers["set-cookie"]
        assert given.startswith("__Host-mcpd_console=")
        assert all(word in given for word in ("Secure", "HttpOnly", "SameSite=strict", "Path=/;"))
        surfer.cookie = given.partition(";")[0]
        assert surfer.get("/ui", **proxied).status == 200
        # Who comes past the proxy does not bring that cookie over a line that anybody reads.
        assert surfer.get("/ui", host="mcpd.example").status == 401


def test_a_session_that_has_ended_is_nobodys(served: Daemon) -> None:
    surfer = Surfer.let_in(served)
    assert surfer.send("/ui/sign-out", form_token=surfer.form_token).status == 303
    assert surfer.get("/ui").status == 401
    assert surfer.get("/ui/live?at=/ui").status == 401


def test_a_token_for_clients_is_not_for_the_console(beside_mcp: Daemon) -> None:
    stranger = Surfer.without_session(beside_mcp)
    for token, role in TOKENS.items():
        assert stranger.get("/ui", authorization=f"Bearer {token}").status == 401
        signed_in = stranger.send("/ui/sign-in", token=token)
        assert signed_in.status == (303 if role else 401)
        assert ("set-cookie" in signed_in.headers) is bool(role)


def test_without_a_session_no_path_shows_more_than_the_way_in(served: Daemon) -> None:
    stranger = Surfer.without_session(served)
    for path in (
        *(
            *PAGES,
            "//ui",
            "/ui//servers",
            "/ui/../ui/servers",
            "/ui/./servers",
            "/ui%2fservers",
            "/%75i/servers",
        ),
        *("/UI/servers", "/ui/servers/git%00", "/ui/static/../servers", "/ui/static/../../application.py"),
        *("/ui/static/x/..%2f..%2fapplication.py", "/ui/static/x/console.js", "/ui/servers;/ui/static/x"),
        f"http://{stranger.authority}/ui/servers",
    ):
        answer = stranger.get(path)
        assert answer.status in {401, 403, 404}, path
        assert "git" not in answer.text, path
        assert "def " not in answer.text, path


# --- pages of others ----------------------------------------------------------------------------------------


def test_a_name_that_was_made_to_resolve_to_this_machine_is_refused(served: Daemon) -> None:
    surfer = Surfer.let_in(served)
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "a,b", ""):
        answer = surfer.get("/ui", host=host)
        assert answer.status in {400, 403}, host
        assert "git" not in answer.text, host


def test_no_page_of_another_origin_reads_or_changes_anything(served: Daemon) -> None:
    surfer, before = Surfer.let_in(served), state_of(served)
    token, far = surfer.form_token, {"sec-fetch-mode": "cors", "sec-fetch-site": "cross-site"}
    for origin in ("https://evil.example", "null", SITE, "http://127.0.0.1:1", "http://localhost"):
        for answer in (
            surfer.get("/ui", origin=origin, **far),
            surfer.get("/ui/live?at=/ui", origin=origin, **{**far, "sec-fetch-site": "same-site"}),
            surfer.send("/ui/servers/git/disable", {"origin": origin}, form_token=token),
            surfer.ask("OPTIONS", "/ui/servers/git/disable", headers={"origin": origin}),
        ):
            assert answer.status in {204, 403, 405}, origin
            assert "git" not in answer.text
            if answer.status != 204:  # of a preflight: what follows is refused all the same
                assert "access-control-allow-origin" not in answer.headers
            assert "access-control-allow-credentials" not in answer.headers
    assert state_of(served) == before


def test_every_response_says_that_nobody_frames_keeps_or_guesses_it(served: Daemon) -> None:
    surfer = Surfer.let_in(served)
    for path in (*PAGES, "/ui/nowhere", "/ui/servers/nobody", "/ui/calls?page=x"):
        headers = surfer.get(path).headers
        assert {name: headers.get(name) for name in HEADERS} == HEADERS, path


FORGED: dict[str, dict[str, str]] = dict(rows_of(Path(__file__), "forged"))


def test_a_form_that_no_page_of_the_session_has_sent_does_nothing(alone: Daemon) -> None:
    surfer, other, before = Surfer.let_in(alone), Surfer.let_in(alone), state_of(alone)
    token = surfer.form_token
    forgeries = ("", "x", other.form_token, f"{token}x")
    for action in ACTIONS:
        for what, headers in FORGED.items():
            assert surfer.send(action, headers, form_token=token).status in {403, 415}, (action, what)
        for forged in forgeries:
            assert surfer.send(action, form_token=forged).status == 403, action
        assert surfer.send(action).status == 403, action
        # `/ui/tools/switch` is a page's.
        assert surfer.get(f"{action}?form_token={token}").status in {404, 405, 200}, action
        assert Surfer(surfer.authority).send(action, form_token=token).status == 401, action
    assert state_of(alone) == before
    assert surfer.get("/ui").status == 200


def test_who_may_only_look_does_nothing(alone: Daemon) -> None:
    surfer, before = Surfer.let_in(alone, read_only=True), state_of(alone)
    token = surfer.form_token
    for action in ACTIONS[:-1]:
        assert surfer.send(action, form_token=token).status == 403, action
    assert state_of(alone) == before


def test_a_form_is_short_and_has_few_fields(served: Daemon) -> None:
    surfer, before = Surfer.let_in(served), state_of(served)
    token = surfer.form_token
    many = {f"f{number}": "x" for number in range(10_000)}
    for target in ("/ui/servers/git/disable", "/ui/sign-in"):
        assert surfer.send(target, form_token=token, **many).status in {400, 413}
        assert surfer.send(target, form_token=token, text="x" * 70_000).status == 413
    bad = {"origin": f"http://{surfer.authority}", "content-type": "application/x-www-form-urlencoded"}
    assert surfer.ask("POST", "/ui/servers/git/disable", b"form_token=\xff\xfe", bad).status == 400
    assert state_of(served) == before


# --- what an address says -----------------------------------------------------------------------------------


ODD = (
    '\\u0022\\u003e\\u003cimg src=x\\u003e"><img src=y>\n\ndata: {"masthead": {}}\r\nSet-Cookie: x=y\u202e\x00'
)
"""What would be markup, an escape of JSON, an event and a header, if an address were not just text."""


def test_nothing_in_an_address_becomes_markup_an_event_or_a_header(alone: Daemon) -> None:
    surfer = Surfer.let_in(alone)
    told = list(_until_data(surfer, f"/ui/servers?x={ODD}"))
    assert [line.partition(":")[0] for line in told if line] == ["retry", "data"]
    html = json.loads(told[-1].removeprefix("data: "))
    assert "<img" not in json.dumps(html)
    assert "\\\\u003cimg" in json.dumps(html)
    back = surfer.send("/ui/servers/git/refresh", form_token=surfer.form_token, back=f"/ui/servers?x={ODD}")
    assert back.status == 303
    assert "set-cookie" not in back.headers


def _until_data(surfer: Surfer, page: str) -> Iterator[str]:
    head = True
    for line in surfer.stream(page):
        if not head and not (line and all(each in "0123456789abcdef" for each in line)):  # a chunk's length
            yield line
        head = head and bool(line)
        if line.startswith("data: "):
            return


TARGETS = (*rows_of(Path(__file__), "targets"), "/ui?" + "&".join(f"a{number}=1" for number in range(101)))


def test_no_address_is_a_fault(alone: Daemon) -> None:
    surfer = Surfer.let_in(alone)
    for target in TARGETS:
        method, address = "HEAD" if "live" in target else "GET", target.replace("NINES", "9" * 5000)
        assert surfer.ask(method, address).status < 500, target
    assert "internal error in mcpd" not in alone.said()


# --- who would keep others out ------------------------------------------------------------------------------


def test_connections_that_say_nothing_keep_nobody_out(served: Daemon) -> None:
    browser = Surfer.let_in(served)
    host, _, port = browser.authority.rpartition(":")
    with contextlib.ExitStack() as held:
        for number in range(3 * MAX_STRANGERS):
            connection = held.enter_context(socket.create_connection((host, int(port))))
            with contextlib.suppress(OSError):  # it had to make room already
                if number % 2:
                    connection.sendall(f"GET /ui HTTP/1.1\r\nHost: {browser.authority}\r\n\r\n".encode())
        assert browser.get("/ui").status == 200
        assert Surfer.let_in(served).get("/ui").status == 200
