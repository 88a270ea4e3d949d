"""Faults of all kinds come together, without the echoes of one another."""

from typing import Any

import pytest

from daemon.config.listen import METRICS_EXAMPLE
from daemon.config.parse import parse
from daemon.safety.redact import Redactor
from tests.unit.cases import cases
from tests.unit.config.reading import SOURCE, config_of, faults_in, with_server


@cases("config", "paths")
def test_faults_of_types_and_of_rules_are_reported_in_one_run(config: object, paths: list[str]) -> None:
    assert sorted(path for path, _ in faults_in(config)) == paths


@cases("entry", "path")
def test_one_slip_is_one_fault(entry: dict[str, Any], path: str) -> None:
    assert [found for found, _ in faults_in({"mcpServers": {"s": entry}})] == [f"$.mcpServers.s.{path}"]


@pytest.mark.parametrize("url", ["ftp://u:hunter2@h", "h/v1", "", "http://", "https://h:x/v1", "http://[h/v1"])
def test_an_endpoint_that_cannot_be_asked_is_a_fault_that_repeats_no_password(url: str) -> None:
    ((path, message),) = faults_in({**with_server(), "summaries": {"model": "m", "baseUrl": url}})
    assert path == "$.summaries.baseUrl"
    assert "https://HOST/v1" in message
    assert "hunter2" not in message


def test_an_endpoint_that_can_be_asked_is_none() -> None:
    for url in ("http://127.0.0.1:8080/v1", "https://u:p@api.example/v1", "http://[::1]:1"):
        assert faults_in({**with_server(), "summaries": {"model": "m", "baseUrl": url}}) == [], url


def faults(listen: str | None) -> list[tuple[str, str]]:
    return faults_in({"metrics": {"listen": listen}})


@cases("listen")
def test_loopback_with_a_port_is_right(listen: str | None) -> None:
    assert faults(listen) == []


@cases("listen")
def test_what_is_no_address_with_a_port_is_a_fault_that_shows_one(listen: str) -> None:
    ((path, message),) = faults(listen)
    assert path == "$.metrics.listen"
    assert message.endswith(f"is not HOST:PORT: write {METRICS_EXAMPLE}")


@cases("host")
def test_what_others_can_reach_or_rename_is_a_fault(host: str) -> None:
    ((path, message),) = faults(f"{host}:9464")
    assert path == "$.metrics.listen"
    assert "is not a loopback address, and metrics have no password" in message
    assert Redactor(())(message) == message, "it must not look like a credential"
    assert METRICS_EXAMPLE in message


def test_a_long_word_is_not_repeated_in_full() -> None:
    ((_, message),) = faults("x" * 10_000 + ":9464")
    assert len(message) < 400


def category(tools: dict[str, Any] | None = None, **entry: Any) -> dict[str, Any]:
    config = with_server()
    config["mcpServers"]["serena"] = {"command": "x"}
    return {**config, "categories": {"fs": {**entry, **({} if tools is None else {"tools": tools})}}}


def profile(**entry: Any) -> dict[str, Any]:
    return {**category(server="git"), "profiles": {"p": entry}}


@cases("entry", "path", "message")
def test_a_category_that_cannot_be_meant_is_a_fault(entry: dict[str, Any], path: str, message: str) -> None:
    assert faults_in(category(**entry)) == [(f"$.categories.fs.{path}".rstrip("."), message)]


def test_without_categories_each_server_is_one() -> None:
    config = {**with_server(), "profiles": {"p": {"categories": ["git"]}}}
    assert faults_in(config) == []


def test_no_profile_is_called_as_urls_write_that_servers_follow() -> None:
    message = "'-' means no profile in URLs (/mcp/-/SERVER): rename this profile"
    assert faults_in({**with_server(), "profiles": {"-": {}}}) == [('$.profiles["-"]', message)]
    assert faults_in({**with_server(), "categories": {"-": {"server": "git"}}}) == []


def test_a_category_may_take_tools_from_several_servers() -> None:
    names = ["git/a", "mcp__serena__a", "/x/"[1:2]]
    config = config_of(category({"includeNames": names}, server="git"))
    assert config.categories["fs"].tools.include_names == ("git/a", "mcp__serena__a", "x")


@cases("config", "path", "message")
def test_a_profile_that_cannot_be_meant_is_a_fault(config: object, path: str, message: str) -> None:
    assert faults_in(config) == [(f"$.profiles.p.{path}", message)]


def test_a_profile_may_name_tools_bare_as_other_programs_do() -> None:
    names = ["find_file", "git/log", "mcp__serena__find_symbol"]
    keys = ("coreTools", "preload", "excludedTools", "includedOptionalTools")
    assert faults_in(profile(**dict.fromkeys(keys, names))) == []


def test_who_does_not_know_the_surfaces_does_not_judge_them() -> None:
    text = '{"profiles": {"p": {"surface": "of tomorrow"}}}'
    assert parse(text, source=SOURCE, environ={}).profiles["p"].surface == "of tomorrow"
