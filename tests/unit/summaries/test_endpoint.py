"""How an endpoint is opened, and what faults mean; over a real connection: test_openai_endpoint."""

import attrs
import pytest

from daemon.config.config_model import Summaries
from daemon.summaries import endpoint


def test_kinds_say_whether_to_wait_for_somebody_and_whom_to_blame() -> None:
    lasting = {kind for kind in endpoint.Failing if kind.lasts}
    blaming = {kind for kind in endpoint.Failing if kind.blames_the_question}
    assert lasting == {endpoint.Failing.UNAUTHORIZED, endpoint.Failing.NOT_FOUND, endpoint.Failing.REDIRECTED}
    assert blaming == {endpoint.Failing.REJECTED, endpoint.Failing.TOO_LARGE}


@pytest.mark.parametrize(
    ("status", "kind"),
    [(302, endpoint.Failing.REDIRECTED), (418, endpoint.Failing.REJECTED), (599, endpoint.Failing.FAILING)],
)
def test_a_status_that_nobody_listed_goes_by_its_class(status: int, kind: endpoint.Failing) -> None:
    assert endpoint.fault_of_status(status, "host:1").kind is kind


def configured(**changed: str) -> Summaries:
    return Summaries(**{"base_url": "http://127.0.0.1:1/v1", "model": "m", **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize("environ", [{}, {"THE_KEY": ""}, {"THE_KEY": "  \n"}])
async def test_a_key_that_is_not_there_is_named_by_its_variable(environ: dict[str, str]) -> None:
    with pytest.raises(endpoint.SummariesUnavailable, match=r"THE_KEY \(summaries.apiKeyEnv\) is not set"):
        await endpoint.open_endpoint(configured(api_key_env="THE_KEY"), environ)


async def test_a_key_beside_the_configuration_counts_where_the_environment_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[str | None] = []
    monkeypatch.setattr(endpoint, "Endpoint", lambda _summaries, key, _place: taken.append(key))
    kept = attrs.evolve(configured(api_key_env="THE_KEY"), kept_key="kept")
    await endpoint.open_endpoint(kept, {})
    await endpoint.open_endpoint(kept, {"THE_KEY": "set"})
    assert taken == ["kept", "set"]


@pytest.mark.parametrize("key", ["sk-\u2026", "sk-1\nx-evil: 1", "sk-\x00"])
async def test_a_key_that_could_not_stand_in_a_header_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(endpoint.SummariesUnavailable, match="cannot be part of a key") as caught:
        await endpoint.open_endpoint(configured(api_key_env="THE_KEY"), {"THE_KEY": key})
    assert "sk-" not in str(caught.value)


@pytest.mark.parametrize("url", ["", "host/v1", "ftp://host/v1", "http://", "http://host:port", "http://[::1"])
async def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(endpoint.SummariesUnavailable, match=r"summaries\.baseUrl"):
        await endpoint.open_endpoint(configured(base_url=url), {})
