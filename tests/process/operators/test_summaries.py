"""The model that writes summaries: its endpoint is asked for models and a test; the choice is written."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from daemon.config.parse import Plan, load
from daemon.errors import InvalidArguments, McpdError
from daemon.operators.base import OperatorContext
from daemon.operators.config_changes import SummariesParams, summaries
from daemon.summaries.endpoint import MAX_QUESTION, SummaryQuestions
from tests.fakes_upstream import Stage
from tests.unit.operators.stage import FACTS, operator_context
from tests.unit.summaries.endpoint_server import EndpointServer, endpoint, saying, status, well
from tests.waiting import in_time

KEY = "sk-canary-0123456789"
MODELS = status(200, json.dumps({"data": [{"id": "big"}, {"id": "little"}]}).encode())


@pytest.fixture
async def server() -> AsyncIterator[EndpointServer]:
    async with endpoint() as served:
        yield served


@pytest.fixture
def config(tmp_path: Path, server: EndpointServer) -> Path:
    path, env = tmp_path / "mcpd.json", tmp_path / "env"
    env.write_text(f"THE_KEY={KEY}\n")
    configured = {"baseUrl": server.base_url, "model": "little", "apiKeyEnv": "THE_KEY"}
    path.write_text(json.dumps({"summaries": configured}) + " // mine\n")
    for each in (path, env):
        each.chmod(0o600)
    return path


def context_of(config: Path) -> OperatorContext:
    stage = Stage()

    async def reload() -> Plan:
        await trio.lowlevel.checkpoint()
        return Plan(sections=("summaries",))

    stage.catalog.set(attrs.evolve(stage.catalog.value, config=load(config, {})))
    return operator_context(
        stage,
        facts=attrs.evolve(FACTS, config=str(config)),
        reload=reload,
        summary_model=lambda: SummaryQuestions(lambda: stage.catalog.value.config, {}),
    )


async def told(config: Path, **wanted: Any) -> Any:
    return await in_time(summaries(context_of(config), SummariesParams(**wanted)))


async def test_what_is_fixed_and_sent_is_shown_without_asking(config: Path, server: EndpointServer) -> None:
    answer = await told(config)
    assert "catalogue of software tools" in answer["prompt"]
    assert "Never arguments or results" in answer["sends"]
    assert server.asked == []


async def test_models_are_listed_with_the_key_of_the_env_file(config: Path, server: EndpointServer) -> None:
    server.behave(MODELS)
    assert (await told(config, models=True))["models"] == ["big", "little"]
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"


async def test_a_model_is_chosen_among_those(config: Path, server: EndpointServer) -> None:
    server.behave(MODELS)
    answer = await told(config, model="big")
    assert answer["changed"]["place"] == "$.summaries.model"
    text = await trio.Path(config).read_text()
    assert '"model": "big"' in text
    assert text.endswith("} // mine\n")
    with pytest.raises(InvalidArguments, match=r"no model 'bigg'.*big"):
        await told(config, model="bigg")


async def test_a_test_shows_the_answer_and_its_fault(config: Path, server: EndpointServer) -> None:
    server.behave(well)
    test = (await told(config, test=""))["test"]
    assert "Does boil_water well." in test["answer"]
    assert (test["fault"], test["tokensRead"]) == ("", None)
    server.behave(saying("It boils water."))
    assert "no JSON object" in (await told(config, test=""))["test"]["fault"]
    test = (await told(config, test="What is it?"))["test"]
    assert (test["answer"], test["fault"]) == ("It boils water.", "")
    assert server.asked[-1].body["messages"][1]["content"] == "What is it?"


async def test_what_fails_names_the_endpoint_and_never_the_key(config: Path, server: EndpointServer) -> None:
    server.behave(status(401))
    with pytest.raises(McpdError, match=rf"127.0.0.1:{server.port} answered HTTP 401") as caught:
        await told(config, models=True)
    assert KEY not in str(caught.value)


async def test_a_question_is_bounded_and_a_model_must_be_configured(config: Path) -> None:
    with pytest.raises(InvalidArguments, match=str(MAX_QUESTION)):
        await told(config, test="x" * (MAX_QUESTION + 1))
    await trio.Path(config).write_text("{}")
    with pytest.raises(McpdError, match="no model is configured"):
        await told(config, models=True)
