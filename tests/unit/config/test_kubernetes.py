"""`config/kubernetes.yaml`: Kubernetes would take it, and mcpd takes the configuration in it."""

from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from daemon.config.config_model import Config
from daemon.config.listen import AccessToken
from daemon.config.parse import parse
from daemon.errors import ConfigError
from daemon.surfaces.table import SURFACES

Json = dict[str, Any]

EXAMPLE = Path(__file__).parents[3] / "config" / "kubernetes.yaml"

OLDEST = "1.29"
"""The oldest Kubernetes whose schemas the example is held against; the package has the newest it knows."""

SECRETS = "/run/secrets/mcpd"

TOKENS = {"token-team": "0123456789abcdef" * 2, "token-ci": "fedcba9876543210" * 2}
"""What an operator puts in."""


@cache
def resources() -> list[Json]:
    return list(yaml.safe_load_all(EXAMPLE.read_text()))


def resource(kind: str) -> Json:
    [found] = [each for each in resources() if each["kind"] == kind]
    return found


def container() -> Json:
    [found] = resource("Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(found)


def configuration(**tokens: str) -> Config:
    """What mcpd reads in a pod whose operator has put in the tokens."""
    secret = {**resource("Secret")["stringData"], **(tokens or TOKENS)}

    def mounted(path: Path) -> str:
        assert str(path.parent) == SECRETS
        return str(secret[path.name])

    text = resource("ConfigMap")["data"]["mcpd.json"]
    return parse(text, source="/etc/mcpd/mcpd.json", environ={}, surfaces=SURFACES, read_file=mounted)


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
def test_kubernetes_takes_every_resource(version: str) -> None:
    for each in resources():
        kubernetes_validate.validate(each, version, strict=True)


def test_mcpd_takes_the_configuration_with_the_secret_beside_it() -> None:
    config, secret = configuration(), resource("Secret")["stringData"]
    assert config.state.url == secret["database-url"]
    http = config.listen.http
    assert http is not None
    tokens = (
        AccessToken(name="team", value=TOKENS["token-team"]),
        AccessToken(name="ci", value=TOKENS["token-ci"], profiles=("reader",)),
    )
    assert http.tokens == tokens
    assert config.mcp_servers["issues"].headers["Authorization"] == f"Bearer {secret['issues-token']}"


def test_tokens_that_nobody_has_replaced_let_nobody_in() -> None:
    with pytest.raises(ConfigError, match="can be guessed"):
        configuration(**{name: resource("Secret")["stringData"][name] for name in TOKENS})


def test_every_secret_is_used_what_is_mounted_is_there_and_what_is_selected_is_labelled() -> None:
    text, pod = resource("ConfigMap")["data"]["mcpd.json"], resource("Deployment")["spec"]["template"]
    assert all(f"${{file:{SECRETS}/{name}}}" in text for name in resource("Secret")["stringData"])
    mounted = {each["name"]: each["mountPath"] for each in container()["volumeMounts"]}
    assert mounted["secrets"] == SECRETS
    assert mounted.keys() == {each["name"] for each in pod["spec"]["volumes"]}
    for kind in ("Deployment", "PodDisruptionBudget"):
        assert resource(kind)["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    service = resource("Service")["spec"]
    assert service["selector"] == pod["metadata"]["labels"]
    assert service["ports"][0]["targetPort"] == container()["ports"][0]["name"]


def test_a_balancer_sees_503_before_anything_is_refused() -> None:
    http, probe = configuration().listen.http, container()["readinessProbe"]
    assert http is not None
    assert http.address.endswith(f":{container()['ports'][0]['containerPort']}")
    assert http.drain > probe["periodSeconds"] * probe["failureThreshold"]
    assert resource("Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > http.drain
    paths = {name: container()[name]["httpGet"]["path"] for name in ("readinessProbe", "livenessProbe")}
    assert paths == {"readinessProbe": "/readyz", "livenessProbe": "/healthz"}
