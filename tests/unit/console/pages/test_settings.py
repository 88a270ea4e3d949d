"""The page of settings: each control does what the command does, and nothing secret is shown."""

from collections.abc import Mapping
from pathlib import Path

import attrs
import msgspec
import pytest
import trio

from daemon.checks.advice import warnings
from daemon.config.parse import Plan, load
from daemon.console.pages.settings_pages import SETTINGS_ACTIONS, SETTINGS_PAGE
from daemon.errors import InvalidArguments, McpdError
from daemon.operators.base import OperatorContext
from tests.fakes_upstream import Stage
from tests.unit.cases import cases
from tests.unit.console.pages.drawing import HOSTILE, drawn, viewer_of
from tests.unit.operators.stage import FACTS, operator_context

TOKEN = "tk-0123456789abcdefghijklmnopqrstuv"
TEXT = f"""{{
  // mine
  "mcpServers": {{"Big Server": {{"command": "x"}}}},
  "profiles": {{"reader": {{"surface": "browse", "description": "reads", "preload": "usual"}}}},
  "summaries": {{"baseUrl": "http://127.0.0.1:1/v1", "model": "little"}},
  "listen": {{"http": {{"tokens": [{{"name": "ci", "value": "{TOKEN}"}}]}}}},
}}
"""
ACTS = {each.path.rpartition("/")[2]: each.act for each in SETTINGS_ACTIONS}


class FakeModel:
    """A model that offers two names, and answers as told."""

    prompt = "You write."
    sends = "Names."

    def __init__(self, answer: str = "It boils.") -> None:
        self.answer = answer
        self.offered: tuple[str, ...] | None = None
        self.tested: Mapping[str, object] | None = None

    async def models(self) -> tuple[str, ...]:
        """The two."""
        await trio.lowlevel.checkpoint()
        self.offered = ("big", "little")
        return self.offered

    async def test(self, question: str) -> Mapping[str, object]:
        """Answer."""
        await trio.lowlevel.checkpoint()
        self.tested = {
            "model": "little", "question": question, "answer": self.answer, "seconds": 1.25, "tokensRead": 7,
            "tokensWritten": None, "fault": "",
        }  # fmt: skip
        return self.tested


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "mcpd.json"
    path.write_text(TEXT)
    path.chmod(0o600)
    return path


def context_of(config: Path, model: FakeModel | None = None) -> OperatorContext:
    stage = Stage()
    catalog = stage.catalog

    async def reload() -> Plan:
        await trio.lowlevel.checkpoint()
        catalog.set(attrs.evolve(catalog.value, config=load(config, {})))
        return Plan(sections=("lazy",))

    catalog.set(attrs.evolve(catalog.value, config=load(config, {})))
    facts = attrs.evolve(FACTS, config=str(config), warnings=warnings)
    context = operator_context(stage, facts=facts, reload=reload)
    if model is None:
        return context
    state = {"model": "little", "endpoint": "127.0.0.1:1", "last_error": "no answer"}
    counters = msgspec.structs.replace(context.counters, summarizer=lambda: state)
    return msgspec.structs.replace(context, counters=counters, summary_model=lambda: model)


def text_of(config: Path) -> str:
    return config.read_text()


async def test_switches_show_what_they_mean_and_no_token_is_shown(config: Path) -> None:
    page = await drawn(SETTINGS_PAGE, viewer_of(context_of(config, FakeModel())))
    shown = ["Master switch", "reader", "reads", "browse: tools to list", "no answer", "Names.", "You write."]
    notes = ["Loading on demand has risks", "The choice of preload has no effect on this surface."]
    for said in (*shown, *notes, "ci", "renamed to 'big-server'"):
        assert said in page.text
    assert TOKEN not in page.html


async def test_a_viewer_who_may_change_nothing_has_no_controls(config: Path) -> None:
    context = context_of(config, FakeModel())
    assert (await drawn(SETTINGS_PAGE, viewer_of(context, may_change=False))).forms == []
    forms = {f"/ui/settings/{name}" for name in ("lazy", "models", "test", "reload")}
    assert {*(await drawn(SETTINGS_PAGE, viewer_of(context))).forms} == forms


@cases("act", "fields")
async def test_what_no_form_of_ours_sends_is_refused(config: Path, act: str, fields: dict[str, str]) -> None:
    with pytest.raises(InvalidArguments):
        await ACTS[act](viewer_of(context_of(config, FakeModel())), fields)
    assert text_of(config) == TEXT


async def test_an_answer_of_the_model_stays_text(config: Path) -> None:
    context = context_of(config, FakeModel(HOSTILE))
    assert "1.2s" in str(await ACTS["test"](viewer_of(context), {"question": " What? "}))
    page = await drawn(SETTINGS_PAGE, viewer_of(context))
    assert page.is_harmless()
    assert "read 7 tokens" in page.text
    assert "alert(1)" in page.text


async def test_a_reload_says_what_it_has_changed_and_a_faulty_file_that_it_is(config: Path) -> None:
    context = context_of(config)
    said = await ACTS["reload"](viewer_of(context), {})
    assert said == "The configuration was read.\napplied: lazy; unchanged: 0"
    await trio.Path(config).write_text('{"mcpServers": {"a": {"command": "${UNSET_HERE}"}}}')
    page = await drawn(SETTINGS_PAGE, viewer_of(context))
    assert "UNSET_HERE is not set" in page.text
    assert "a reload changes nothing" not in page.text, "its server waits for the variable"
    await trio.Path(config).write_text('{"lazzy": 1}')
    page = await drawn(SETTINGS_PAGE, viewer_of(context))
    assert "a reload changes nothing" in page.text
    assert "lazzy" in page.text
    with pytest.raises(McpdError):
        await ACTS["reload"](viewer_of(context), {})
