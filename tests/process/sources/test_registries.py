"""Registries are asked over real connections, those that lie, drip or never end, too."""

import json
import stat
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from daemon.cli.table import implementation
from daemon.sources import registries
from daemon.sources.downloads import SECONDS, fetch
from daemon.sources.offers import SourceTrouble
from daemon.sources.registries import MAX_PAGES, MAX_WORDS, MOST_KEPT, MOST_NOTES, Registries, opened
from tests.printing import out_of
from tests.registries import LocalRegistry, documents_in, registry
from tests.unit.cases import cases

PUBLISHED = documents_in(Path(__file__).parents[2] / "servers_published")
URL = "https://registry.example.com"
TIME = "io.github.modelcontextprotocol/mcp-server-time"


def document(name: str, version: str = "1.0.0", **more: Any) -> dict[str, Any]:
    return {"name": name, "version": version, "description": "A server for tests", **more}


def asking(place: Path, *running: LocalRegistry, offline: bool = False) -> Registries:
    return Registries(tuple(each.url for each in running), place / "cache", offline=offline)


def test_a_server_is_found_by_its_name_in_its_newest_version_or_another(tmp_path: Path) -> None:
    newest = document("io.example/a", "2.0.0+build.1")
    documents = [document("io.example/a", "1.0.0"), newest]
    # A null is what there is not.
    with registry([documents[0], {**newest, "packages": None, "title": None}]) as running:
        asked = asking(tmp_path, running)
        assert asked.server("io.example/a") == (running.url, documents[1])
        assert asked.server("io.example/a", "1.0.0") == (running.url, documents[0])
        assert asked.server("io.example/a", "2.0.0+build.1") == (running.url, documents[1])
        assert running.asked[0] == "/v0.1/servers/io.example%2Fa/versions/latest"


def test_a_search_reads_all_pages_and_wants_every_word(tmp_path: Path) -> None:
    documents = [document(f"io.example/server-{number}") for number in range(250)]
    documents[240]["description"] = "The one with Octopus in it"
    with registry([*documents, document("io.example/other", description="octopus")]) as running:
        (row,) = asking(tmp_path, running).search(["Server", "octopus"], 20)
        assert len(asking(tmp_path, running).search(["server"], 20)) == 20
    assert row == {**documents[240], "registry": running.url}
    # Three pages for a word that is in all names, one for the other, and three again.
    assert len(running.asked) == 7
    with registry(PUBLISHED) as running:
        # The beginning of most names is no word of theirs.
        found = {row["name"].partition("/")[2] for row in asking(tmp_path, running).search(["git"], 20)}
        assert found == {"mcp-server-git", "github-mcp-server"}
        running.asked.clear()
        assert not asking(tmp_path, running).search(["one", "two", "three", "four", "five"], 20)
    assert len(running.asked) == MAX_WORDS


def test_registries_are_asked_in_order_and_one_that_is_down_is_named(tmp_path: Path) -> None:
    first, second = document("io.example/a", "1.0.0"), document("io.example/a", "2.0.0")
    with registry(hostile="down") as down, registry([first]) as one, registry([second]) as other:
        asked = asking(tmp_path, down, one, other)
        assert asked.server("io.example/a") == (one.url, first)
        assert asked.notes == [f"{down.url}: answered HTTP 500"]
        assert not other.asked
        assert [row["registry"] for row in asking(tmp_path, other, one).search(["a"], 20)] == [other.url]


@pytest.mark.parametrize(
    ("documents", "hostile", "version", "told"),
    [
        (PUBLISHED, "", "1.0", " is known in version 1.0: `mcpd search"),
        (PUBLISHED, "other_server", None, " is known"),
        ([document("io.example/a", "6.6.6")], "other_server", "1.0.0", " is known in version 1.0.0"),
    ],
    ids=["nobody publishes it", "another server", "another version"],
)
def test_anything_but_the_server_that_was_asked_for_is_refused(
    documents: list[Any], hostile: str, version: str | None, told: str, tmp_path: Path
) -> None:
    with registry(documents, hostile) as running, pytest.raises(SourceTrouble) as raised:
        asking(tmp_path, running).server("io.example/a", version)
    assert f"no server io.example/a{told}" in str(raised.value)
    assert not asking(tmp_path, running, offline=True).search([""], 20)


@cases("name", "version")
def test_what_is_no_name_is_not_asked_for(name: str, version: str | None, tmp_path: Path) -> None:
    with registry(PUBLISHED) as running:
        with pytest.raises(SourceTrouble, match="names no server: write") as raised:
            asking(tmp_path, running).server(name, version)
        assert not running.asked
    assert len(str(raised.value)) < 300


@cases("hostile", "told")
@pytest.mark.parametrize("way", ["server", "search"])
def test_a_hostile_registry_is_told_and_the_next_is_asked(
    hostile: str, told: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry(PUBLISHED, hostile) as bad, registry(PUBLISHED) as good:

        def hurried(place: str, *, seconds: float, **limits: Any) -> Any:
            """The hostile one is waited for briefly, the other as long as it may need on a busy machine."""
            brief = "in full" in told and place.startswith(bad.url)
            return fetch(place, seconds=0.5 if brief else seconds, **limits)

        monkeypatch.setattr(registries, "fetch", hurried)
        asked = asking(tmp_path, bad, good)
        if way == "server":
            assert asked.server(TIME)[0] == good.url
        else:
            assert [row["registry"] for row in asked.search(["mcp-server-time"], 20)] == [good.url]
    assert [told in note for note in asked.notes] == [True]
    assert asked.notes[0].startswith(f"{bad.url}: ")


@pytest.mark.parametrize("hostile", ["pages_without_end", "same_cursor"])
def test_pages_without_end_end(hostile: str, tmp_path: Path) -> None:
    with registry(PUBLISHED, hostile) as running:
        rows = asking(tmp_path, running).search(["server"], 20)
    assert len(running.asked) == MAX_PAGES
    assert len({row["name"] for row in rows}) == len(rows) > 5


def test_the_pages_of_a_registry_share_their_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def fetched(url: str, *, seconds: float, **how: Any) -> bytes:
        given.append(seconds)
        return json.dumps({"servers": [], "metadata": {"nextCursor": f"{len(given)}"}}).encode()

    monkeypatch.setattr(registries, "fetch", fetched)
    clock = count(0, SECONDS / 3)
    monkeypatch.setattr(registries, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert not Registries((URL,), tmp_path).search(["a"], 20)
    assert len(given) == MAX_PAGES
    assert [*map(round, given[:2])] == [20, 10]
    assert {*given[2:]} == {registries.LAST_SECONDS}


@cases("spoilt")
def test_a_spoilt_document_spoils_no_page(spoilt: Any, tmp_path: Path) -> None:
    def answered(handler: Any) -> None:
        handler.tell({"servers": [{"server": spoilt}, {"server": document("io.example/a")}]})

    with registry() as running:
        running.answers = answered
        asked = asking(tmp_path, running)
        assert [row["name"] for row in asked.search(["example"], 20)] == ["io.example/a"]
    (note,) = asked.notes
    assert "its server cannot be used: " in note


def test_of_many_spoilt_documents_some_are_told(tmp_path: Path) -> None:
    with registry([document(f"io.example/a{number}", packages=3) for number in range(300)]) as running:
        asked = asking(tmp_path, running)
        assert not asked.search(["example"], 20)
    assert len(asked.notes) == MOST_NOTES


def test_a_description_of_ten_megabytes_is_refused_and_a_long_one_cut(tmp_path: Path) -> None:
    with (
        registry([document("io.example/a", description="x " * 5_000_000)]) as running,
        pytest.raises(SourceTrouble, match="the answer has more than"),
    ):
        asking(tmp_path, running).server("io.example/a")
    with registry([document("io.example/a", description="word\n\x1b[2J " * 1000)]) as running:
        (row,) = asking(tmp_path, running).search(["example"], 20)
        assert len(row["description"]) <= 300


def test_what_was_seen_is_found_offline(tmp_path: Path) -> None:
    with registry(PUBLISHED) as running:
        asking(tmp_path, running).search(["time"], 20)
        found = asking(tmp_path, running).server("io.github.microsoft/playwright-mcp")
    offline = asking(tmp_path, running, offline=True)
    asked = len(running.asked)
    assert offline.server("io.github.microsoft/playwright-mcp") == found
    assert offline.server(TIME)[1]["version"] == "2026.10.19"
    assert offline.server(TIME, "2026.10.19")[1]["name"] == TIME
    assert [row["name"] for row in offline.search(["zones"], 20)] == [TIME]
    with pytest.raises(SourceTrouble, match="is known"):
        offline.server(TIME, "1.0.0")
    assert len(running.asked) == asked
    (file,) = (tmp_path / "cache").glob("*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_the_cache_is_bounded_and_keeps_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with registry([document(f"io.example/a{number}") for number in range(600)]) as running:
        asking(tmp_path, running).search(["none"], 20)
        asking(tmp_path, running).search(["example"], 600)
        asking(tmp_path, running).server("io.example/a5")
        (file,) = (tmp_path / "cache").glob("*.json")
        kept = json.loads(file.read_bytes())["servers"]
        assert len(kept) == MOST_KEPT
        assert [each["name"] for each in kept[:2]] == ["io.example/a5", "io.example/a500"]
        monkeypatch.setattr(registries, "MOST_CACHE", 1000)
        asking(tmp_path, running).server("io.example/a7")
    assert file.stat().st_size <= 1000
    assert json.loads(file.read_bytes())["servers"][0]["name"] == "io.example/a7"


BROKEN = [
    "",
    "{",
    "[]",
    "null",
    '{"servers": 3}',
    '{"servers": [3]}',
    '{"servers": [{"name": []}]}',
    "[" * 10**6,
]


def test_a_broken_cache_is_ignored_and_replaced_and_without_a_place_for_it_all_works(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "cache").write_text("a file")
    with registry(PUBLISHED) as running:
        assert asking(tmp_path / "file", running).server(TIME)[0] == running.url
        for content in BROKEN:
            asking(tmp_path, running).server(TIME)
            (file,) = (tmp_path / "cache").glob("*.json")
            file.write_text(content)
            with pytest.raises(SourceTrouble, match="is known"):
                asking(tmp_path, running, offline=True).server(TIME)
        asking(tmp_path, running).server(TIME)
        assert asking(tmp_path, running, offline=True).server(TIME)


def test_the_registries_are_those_of_the_configuration_or_the_official_one(tmp_path: Path) -> None:
    config = tmp_path / "mcpd.json"
    assert opened(config, {}).urls == (registries.OFFICIAL,)
    config.write_text(
        '{"registries": ["http://127.0.0.1:1", "https://registry.example.com"], "mcpServers": {}}'
    )
    made = opened(config, {"XDG_CACHE_HOME": str(tmp_path)}, offline=True)
    assert made.urls == ("http://127.0.0.1:1", "https://registry.example.com")
    assert made.cache == tmp_path / "mcpd" / "registry"
    assert made.offline


def test_the_official_registry_may_not_lead_into_a_private_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry(PUBLISHED) as running:
        monkeypatch.setattr(registries, "OFFICIAL", running.url)
        with pytest.raises(SourceTrouble, match="mcpd does not fetch from"):
            asking(tmp_path, running).server(TIME)
    assert not running.asked


def test_the_command_prints_a_line_for_each_server_or_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoilt = document(
        "io.example/spoilt", registry="https://lie.example.com", x="\ud800", description="git \x1b[2J\u202e"
    )
    with registry([*PUBLISHED, spoilt]) as running:
        (tmp_path / "mcpd.json").write_text(json.dumps({"registries": [running.url], "mcpServers": {}}))
        monkeypatch.setenv("MCPD_CONFIG", str(tmp_path / "mcpd.json"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        assert implementation("search").main(["--registry", "mcp-server-time"]) == 0
        line = f"{TIME} 2026.10.19: The time, and its conversion between time zones\n"
        assert capsys.readouterr() == (line, "")
        assert implementation("search").main(["spoilt", "--registry", "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)["servers"]
        assert (row["name"], row["registry"]) == ("io.example/spoilt", running.url)
        assert implementation("search").main(["--registry", "spoilt"]) == 0
        assert not {"\x1b", "\u202e"} & {*capsys.readouterr().out}
        assert implementation("search").main(["--registry", "nothing-of-this-name"]) == 1
        assert capsys.readouterr() == ("", "mcpd: no server matches 'nothing-of-this-name'\n")
    assert implementation("search").main(["--registry", "time"]) == 1
    assert capsys.readouterr().err.startswith(f"mcpd: {running.url}: cannot be read: Connection refused\n")
    assert implementation("search").main(["--registry", "time"]) == 1
    assert capsys.readouterr().err.endswith("mcpd: no server matches 'time' in what could be read\n")
    assert out_of(capsys, implementation("search").main(["--registry", "--offline", "time"])) == line
