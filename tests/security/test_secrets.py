"""S4: canaries, each in another place, and none of them where an operator or a model would see it."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from loguru import logger

from daemon.clients.doors.http.admission import HttpAdmission
from daemon.clients.doors.http.reading import Head, Refusal
from daemon.clients.doors.http.valid_tokens import Tokens
from daemon.config.config_model import Config
from daemon.config.parse import parse
from daemon.config.redaction import Redactors
from daemon.counting.measures import NOISE_CHARACTERS, STDERR_LINE
from daemon.counting.prometheus import render
from daemon.counting.readings import read
from daemon.errors import ConfigError
from daemon.host.tokens import TokenFile
from daemon.operators.token_commands import TokenParams
from daemon.operators.token_commands import tokens as report
from daemon.safety.redact import CUT, HIDDEN
from tests.fakes_upstream import Stage
from tests.security.conftest import Watched
from tests.security.hostile import SECRETS, everything, spellings
from tests.security.surfing import Surfer
from tests.unit.counting.samples import exporter
from tests.unit.operators.stage import operator_context
from tests.waiting import eventually


def leaks(said: str) -> list[str]:
    """Which canaries are in a text, in whatever spelling."""
    return [name for name, secret in SECRETS.items() if any(each in said for each in spellings(secret))]


def test_the_canaries_would_be_found() -> None:
    assert leaks(everything()) == list(SECRETS)
    assert leaks(json.dumps(everything())) == list(SECRETS)
    assert not leaks("canary-other")


@pytest.fixture(scope="module")
def provoked(hostile: Watched) -> Watched:
    """The daemon, after its servers have printed, refused and repeated all that they know."""
    with hostile.client() as client:
        client.run("leaky", "act", error={"code": -32000, "message": everything()})
        client.run("leaky", "plain", token=SECRETS["env"])
        client.run("leaky", "act", write=_notification("x" * (STDERR_LINE - 30) + SECRETS["env"] + " and more"))
        client.call("get-category-tools", {"category": "remote"})
    down = ("remote", "basic", "tokened")
    eventually(lambda: all(hostile.ask("status")["servers"][name]["attempt"] for name in down))
    eventually(lambda: "stderr:" in hostile.said())
    return hostile


def _notification(text: str) -> str:
    params = {"level": "info", "data": text}
    return json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": params}) + "\n"


SHOWS_TELLING: dict[str, tuple[str, dict[str, Any]]] = {
    "category": ("get-category-tools", {"category": "leaky"}),
    "browse": ("get_tools", {"category": "leaky"}),
    "search": ("search_tools", {"query": "telling"}),
    "load": ("load_mcp_tool", {"names": ["telling"]}),
}
"""What a model is told a definition by."""
ASKED: dict[str, Callable[[Watched], str]] = {
    "log at DEBUG": lambda daemon: daemon.said(),
    "status": lambda daemon: json.dumps(daemon.ask("status"), ensure_ascii=False),
    "logs": lambda daemon: json.dumps(daemon.ask("logs", server="leaky")),
    "tools": lambda daemon: json.dumps(daemon.ask("tools")),
    "sessions": lambda daemon: json.dumps(daemon.ask("sessions")),
    "metrics": lambda daemon: json.dumps(daemon.ask("metrics")),
    "mcpd doctor": lambda daemon: daemon.run("doctor", check=None),
    "mcpd check": lambda daemon: daemon.run("check", str(daemon.config), check=None),
    "events": lambda daemon: json.dumps(daemon.ask("events"), ensure_ascii=False),
    "calls": lambda daemon: json.dumps(daemon.ask("calls"), ensure_ascii=False),
    "one server": lambda daemon: json.dumps(daemon.ask("status", server="leaky"), ensure_ascii=False),
    "one tool": lambda daemon: json.dumps(daemon.ask("tool", tool="telling", server="leaky")),
    "mcpd events": lambda daemon: daemon.run("events", "leaky"),
    "mcpd calls": lambda daemon: daemon.run("calls", check=None),
    "restart": lambda daemon: json.dumps(daemon.ask("restart", server="remote")),
}
"""What operators can ask."""


@pytest.mark.parametrize("question", ASKED)
def test_no_secret_is_in_what_an_operator_is_shown(provoked: Watched, question: str) -> None:
    said = ASKED[question](provoked)
    assert said
    assert not leaks(said)


def test_no_secret_is_on_a_page_of_the_console_or_in_its_stream(provoked: Watched) -> None:
    with provoked.client().hello(session="of-canaries", profile="load") as client:
        client.load("telling")
        client.call(SECRETS["env"], {})
        surfer = Surfer.let_in(provoked)
        pages = surfer.pages_of(provoked)
        assert {"/ui/sessions/of-canaries", "/ui/servers/leaky", "/ui/tools/leaky/telling"} <= {*pages}
        for page in pages:
            shown = surfer.get(page)
            assert shown.status == 200, page
            assert not leaks(shown.text), page
            assert not leaks(surfer.data(page)), page


def test_that_something_was_taken_out_is_seen(provoked: Watched) -> None:
    assert HIDDEN in provoked.said()
    assert HIDDEN in "".join(provoked.ask("status")["servers"]["leaky"]["stderr"])


def test_what_was_cut_is_seen_up_to_where_a_secret_began(provoked: Watched) -> None:
    said = provoked.said()
    for text in ("n" * (NOISE_CHARACTERS - 12), "c" * (STDERR_LINE - 12)):
        assert text + CUT in said
    assert provoked.ask("status")["servers"]["leaky"]["noise"]["first"].endswith("n" + CUT)


@pytest.mark.parametrize("surface", ["category", "browse", "search", "load", "full"])
def test_no_secret_is_in_a_definition_that_a_model_is_shown(provoked: Watched, surface: str) -> None:
    with provoked.client().hello(profile=surface) as client:
        shown = client.call(*SHOWS_TELLING[surface]) if surface in SHOWS_TELLING else None
        said = json.dumps([shown, client.ask("tools/list")], ensure_ascii=False)
    assert "telling" in said
    assert HIDDEN in said
    assert not leaks(said)


def test_a_tool_whose_name_is_a_secret_is_quarantined(provoked: Watched) -> None:
    quarantined = provoked.ask("status")["servers"]["leaky"]["quarantined"]
    assert "contains a secret" in quarantined[HIDDEN]


def test_arguments_are_checked_by_what_was_shown(provoked: Watched) -> None:
    with provoked.client() as client:
        assert not client.run("leaky", "telling", plain="abc")["isError"]
        refused = client.run("leaky", "telling", plain="ABC")
    assert refused["structuredContent"]["error"]["code"] == "InvalidArguments"


def test_no_secret_is_in_the_store(provoked: Watched) -> None:
    files = [path for path in provoked.state.parent.rglob("*") if path.is_file()]
    assert any(path.name == "state.db" for path in files)
    for path in files:
        assert not leaks(path.read_bytes().decode("latin-1")), path


def test_no_secret_is_in_the_argv_of_any_other_process(provoked: Watched) -> None:
    status = provoked.ask("status")["servers"]
    own, daemon = status["leaky"]["pid"], provoked.ask("status")["daemon"]["pid"]
    found = {}
    for pid in (daemon, *(each["pid"] for each in status.values() if each["pid"])):
        with suppress(FileNotFoundError, ProcessLookupError):  # a server that has ended since
            found[pid] = leaks(Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace"))
    assert found.pop(own) == ["argument", "literal", "default", "authorised", "connection"]
    assert daemon in found
    assert not any(found.values())


@pytest.mark.parametrize("surface", ["category", "full"])
def test_no_secret_is_in_what_a_model_is_told_of_a_server_that_is_not_there(
    provoked: Watched, surface: str
) -> None:
    with provoked.client().hello(profile=surface) as client:
        for server in ("remote", "tokened"):
            down = client.run(server, "echo") if surface == "category" else client.call(f"{server}__echo", {})
            assert down["isError"]
            assert not leaks(json.dumps(down, ensure_ascii=False))


@pytest.mark.parametrize("surface", ["category", "full"])
def test_no_secret_is_in_the_error_that_a_server_answers_to_a_call(provoked: Watched, surface: str) -> None:
    error = {"code": -32000, "message": everything(), "data": {"seen": [everything()]}}
    with provoked.client().hello(profile=surface) as client:
        if surface == "category":
            refused = client.run("leaky", "act", error=error)
        else:
            refused = client.call("leaky__act", {"error": error})
    assert refused["isError"]
    assert not leaks(json.dumps(refused, ensure_ascii=False))
    assert HIDDEN in json.dumps(refused)


# --- A token opens the daemon and is written nowhere ---------------------------------------------------------


CONFIGURED = "Zq8-configured-Zq8"
LISTEN: dict[str, Any] = {
    "hosts": ["box"],
    "tokens": [{"name": "ci", "value": CONFIGURED, "profiles": ["default"]}],
}


@pytest.fixture
def log() -> Iterator[list[str]]:
    """Everything that is logged, with what an error would show of its variables."""
    lines: list[str] = []
    sink = logger.add(
        lines.append, level="TRACE", format="{message} {exception}", diagnose=True, backtrace=True
    )
    yield lines
    logger.remove(sink)


def configured(http: dict[str, Any]) -> Config:
    return parse(json.dumps({"listen": {"http": http}}), source="mcpd.json", environ={})


def heads(value: str) -> Iterator[Head]:
    """Requests that are refused, each with the token somewhere."""
    for headers in (
        {"authorization": f"Bearer {value}x"},
        {"authorization": f"Basic {value}"},
        {"authorization": f"Bearer {value}, Bearer {value}"},
        {"x-api-key": value},
        {"host": "evil.example", "authorization": f"Bearer {value}"},
        {"origin": "https://evil.example", "authorization": f"Bearer {value}"},
    ):
        yield Head(method="POST", path="/mcp", headers={"host": "box", **headers}, peer="203.0.113.7")


async def test_a_token_is_written_nowhere(tmp_path: Path, log: list[str]) -> None:
    for number, http in enumerate((LISTEN, {**LISTEN, "tokens": None})):
        file = TokenFile(tmp_path / str(number))
        config = configured(http)
        listen, redact, stage = config.listen.http, Redactors(), Stage(config)
        assert listen is not None
        redact.learn(config)
        known = Tokens(listen, file, redact=redact)
        await known.learn()
        admission = HttpAdmission(listen, known, count=stage.tally.turned_away)
        named = await known.add("phone", None)
        values = [named, CONFIGURED if http is LISTEN else await known.shown_default()]
        said: list[object] = [config, known, admission, file.path.read_text(), admission.__dict__]
        for head in (each for value in values for each in heads(value)):
            with pytest.raises(Refusal) as caught:
                _enter(admission, head)
            said += [head, caught.value, caught.value.text, caught.value.headers]
        said.append(await report(operator_context(stage, access=known), TokenParams()))
        said.append(render(read(exporter(stage.tally)).with_memory({})))
        shown = "\n".join([*map(repr, said), *map(str, said), *log])
        assert not [value for value in values if value in shown]
        assert all(value not in redact(f"it said {value} to me") for value in values)


def _enter(admission: HttpAdmission, head: Head) -> None:
    admission.greet(head)
    admission.visitor(head)


@pytest.mark.parametrize(
    "http",
    [
        {"tokens": "Zq8-too-short"},
        {"tokens": {"name": "ci", "value": CONFIGURED}},
        {"tokens": [CONFIGURED]},
        {"tokens": [{"name": CONFIGURED + ":", "value": CONFIGURED + " "}]},
        {"tokens": [{"name": "a", "value": CONFIGURED}, {"name": "b", "value": CONFIGURED}]},
        {"tokens": [{"name": "a", "value": [CONFIGURED]}]},
        {"tls": {"cert": "a", "key": f"-----BEGIN PRIVATE KEY-----\n{CONFIGURED}"}},
    ],
)
def test_no_fault_of_a_configuration_repeats_a_token(http: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(http)
    assert "Zq8" not in str(caught.value)
