"""A token opens the daemon and is written nowhere: not in a log, an error, a repr, a report or a metric."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from loguru import logger

from daemon.clients.doors.http.admission import HttpAdmission
from daemon.clients.doors.http.exchange import Refusal
from daemon.clients.doors.http.reading import Head
from daemon.clients.doors.http.valid_tokens import Tokens
from daemon.config.parse import parse
from daemon.config.redaction import Redactors
from daemon.counting.prometheus import render
from daemon.counting.readings import read
from daemon.errors import ConfigError
from daemon.host.tokens import TokenFile
from daemon.operators.token_commands import TokenParams
from daemon.operators.token_commands import tokens as report
from tests.fakes_upstream import Stage
from tests.unit.counting.samples import exporter
from tests.unit.operators.stage import operator_context

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from daemon.config.config_model import Config

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
