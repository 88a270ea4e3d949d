"""The shipped examples load, fit their schemas and follow our own advice; Kubernetes would take its one."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate
import pytest
import yaml

from daemon.checks.advice import oversights
from daemon.config.config_model import Config, Share
from daemon.config.jsonc import decode
from daemon.config.listen import AccessToken
from daemon.config.names import read_reference
from daemon.config.parse import load, parse
from daemon.config.schema import json_schema
from daemon.errors import ConfigError
from daemon.surfaces.table import SURFACES, chosen
from tests.unit.cases import rows_of

EXAMPLES = Path(__file__).parents[3] / "config"
FILES = sorted(path for path in EXAMPLES.glob("*.json") if path.name != "mcpd.schema.json")

(SERENA_2_1_DESKTOP_APP,) = rows_of(Path(__file__), "serena_2_1_desktop_app")
"""What Serena 2.1.0 listed in its context `desktop-app`."""

DEMO = dict(rows_of(Path(__file__), "demo"))
"""What the servers of the demo listed, in the versions that it pins."""


SEMCODE = dict(rows_of(Path(__file__), "semcode"))
"""The categories of semcode 0.1.1 and the tools that it has in each, as its `--lazy` lists them."""


def named_tools(config: Config, category: str) -> list[tuple[str, str]]:
    """Server and tool of every name in a category, overrides included."""
    entry = config.categories[category]
    names = [*entry.tools.include_names, *entry.tools.overrides]
    references = [read_reference(name, config.mcp_servers) for name in names]
    return [(reference.server or entry.server or "", reference.tool) for reference in references]


def included(config: Config, categories: Iterable[str]) -> list[str]:
    return [
        read_reference(name, config.mcp_servers).tool
        for category in categories
        for name in config.categories[category].tools.include_names
    ]


def switched_off(config: Config) -> set[str]:
    return {
        read_reference(name, config.mcp_servers).tool
        for category in config.categories.values()
        for name, override in category.tools.overrides.items()
        if not override.enabled
    }


def test_the_examples_are_there() -> None:
    assert [path.name for path in FILES] == ["demo.json", "semcode.json", "serena.json"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_example_loads_without_any_environment_and_follows_our_own_advice(path: Path) -> None:
    config = load(path, {})
    value, _ = decode(path.read_text(encoding="utf-8"), source=path.name)
    jsonschema.Draft202012Validator(json_schema(list(SURFACES))).validate(value)
    for server in config.mcp_servers.values():
        if server.command in {"npx", "uvx"}:
            assert any(re.search(r"(==|[^@]@)\d+\.\d+\.\d+$", each) for each in server.args), server.name
    assert all(server.description for server in config.mcp_servers.values())
    assert all(category.description for category in config.categories.values())
    commands = {name: server for name, server in config.mcp_servers.items() if server.command}
    on = {name: attrs.evolve(server, enabled=True) for name, server in commands.items()}
    told = oversights(attrs.evolve(config, mcp_servers={**config.mcp_servers, **on}))
    assert not [fault.message for fault in told]


def test_the_demo_shows_who_may_share_a_server_names_real_tools_and_switches_off_what_destroys() -> None:
    config = load(EXAMPLES / "demo.json", {})
    shared = {name: server.shared_by for name, server in config.mcp_servers.items()}
    divided = {name: share for name, share in shared.items() if share is not Share.ALL}
    assert divided == {"filesystem": Share.WORKSPACE, "browser": Share.SESSION}
    for category in config.categories:
        for server, tool in named_tools(config, category):
            assert tool in DEMO[server], f"{category}: {server}/{tool}"
    assert {"git_reset", "write_file", "move_file", "delete_entities"} <= switched_off(config)


def test_semcode_has_the_five_categories_of_its_own_and_its_16_tools() -> None:
    config = load(EXAMPLES / "semcode.json", {}, SURFACES)
    assert {name: included(config, [name]) for name in config.categories} == SEMCODE
    assert sum(map(len, SEMCODE.values())) == 16
    assert chosen(config, config.profiles["default"]) == "browse"


def test_serena_is_split_into_the_five_categories_and_every_tool_is_in_exactly_one() -> None:
    config = load(EXAMPLES / "serena.json", {})
    five = config.profiles["default"].categories
    assert five == ("fs", "code", "memory", "session", "meta")
    assert sorted(included(config, five)) == sorted(SERENA_2_1_DESKTOP_APP)
    assert "execute_shell_command" in switched_off(config)
    assert config.categories["code"].tools.exclude_patterns
    assert config.mcp_servers["serena"].shared_by is Share.WORKSPACE


def test_the_second_profile_of_serena_has_the_eight_categories_and_core_tools_of_the_draft() -> None:
    config = load(EXAMPLES / "serena.json", {}, SURFACES)
    profile = config.profiles["deferred"]
    eight, words = (
        profile.categories or (),
        "file_operations symbolic_read symbolic_edit memory config workflow",
    )
    assert " ".join(eight) == f"{words} shell jetbrains"
    assert sorted(included(config, eight)) == sorted(SERENA_2_1_DESKTOP_APP)
    assert set() < set(profile.core_tools or ()) <= set(SERENA_2_1_DESKTOP_APP)
    assert chosen(config, profile) == "search"


Json = dict[str, Any]

MANIFEST = Path(__file__).parents[3] / "config" / "kubernetes.yaml"

OLDEST = "1.29"
"""The oldest Kubernetes whose schemas the example is held against; the package has the newest it knows."""

SECRETS = "/run/secrets/mcpd"

TOKENS = {"token-team": "0123456789abcdef" * 2, "token-ci": "fedcba9876543210" * 2}
"""What an operator puts in."""


@cache
def resources() -> list[Json]:
    return list(yaml.safe_load_all(MANIFEST.read_text()))


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
