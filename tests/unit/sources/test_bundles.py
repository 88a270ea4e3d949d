"""Bundles become offers: manifests of each version, what they ask for, and text that stays text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.config.parse import parse
from daemon.sources import bundles
from daemon.sources.offers import ServerOffer, SourceTrouble, filled, missing
from tests.unit.sources.packing import manifest, packed

KEY = "sk-of-the-machine-and-of-no-bundle"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home"), "XDG_DATA_HOME": str(tmp_path / "data")}


@pytest.fixture
def home(environ: Mapping[str, str]) -> Path:
    made = Path(environ["HOME"])
    made.mkdir()
    return made


@attrs.frozen
class Taking:
    """Takes bundles, as `mcpd add` does."""

    directory: Path
    environ: dict[str, str]

    def __call__(self, written: Mapping[str, Any], *names: str) -> ServerOffer:
        path = self.directory / "some.mcpb"
        path.write_bytes(packed({"manifest.json": json.dumps(written), **dict.fromkeys(names, "")}))
        return bundles.taken(path, environ=self.environ)


@pytest.fixture
def take(tmp_path: Path, environ: dict[str, str], home: Path) -> Taking:
    return Taking(tmp_path, environ)


def bundle_of(offer: ServerOffer) -> Path:
    assert offer.origin.bundle is not None
    return Path(offer.origin.bundle)


@pytest.mark.parametrize(
    "version", [{"manifest_version": f"0.{each}"} for each in (1, 2, 3, 4)] + [{"dxt_version": "0.1"}]
)
def test_a_server_is_offered_with_its_files_and_its_hash(version: dict[str, str], take: Taking) -> None:
    written = {key: value for key, value in manifest().items() if key != "manifest_version"}
    offer = take({**written, **version}, "server/index.js")
    content = (take.directory / "some.mcpb").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    directory = take.directory / "data" / "mcpd" / "bundles" / f"some-server-{digest[:12]}"
    assert offer.name == "some-server"
    assert attrs.asdict(offer.origin) == {
        "registry": None,
        "name": "Some Server",
        "version": "1.2.3",
        "hash": f"sha256:{digest}",
        "bundle": str(directory),
    }
    assert filled(offer, {}) == {"command": "node", "args": [f"{directory}/server/index.js"]}
    assert (directory / "server" / "index.js").is_file()


def test_an_override_for_linux_counts_and_others_do_not(take: Taking) -> None:
    config = {
        "command": "node",
        "args": ["all"],
        "env": {"A": "1"},
        "platform_overrides": {
            "linux": {"command": "${__dirname}/run", "env": {"B": "2"}},
            "darwin": {"args": ["mac"]},
        },
    }
    offer = take(manifest(mcp_config=config))
    assert filled(offer, {}) == {"command": f"{bundle_of(offer)}/run", "args": ["all"], "env": {"B": "2"}}


def test_places_are_put_in(take: Taking, home: Path) -> None:
    args = ["${HOME}${/}a", "${DESKTOP}", "${DOCUMENTS}", "--to=${DOWNLOADS}${pathSeparator}b", "${OTHER}"]
    offer = take(manifest(mcp_config={"command": "node", "args": args}))
    assert parsed(filled(offer, {}), {}) == [
        f"{home}/a",
        f"{home}/Desktop",
        f"{home}/Documents",
        f"--to={home}/Downloads/b",
        "${OTHER}",
    ]


def test_a_path_within_the_bundle_leads_there_and_a_word_stays(take: Taking) -> None:
    config = {"command": "server/run", "args": ["server/main.py", "server", "no/such"]}
    offer = take(manifest(type="binary", mcp_config=config), "server/run", "server/main.py", "server/server")
    at = bundle_of(offer)
    assert filled(offer, {}) == {
        "command": f"{at}/server/run",
        "args": [f"{at}/server/main.py", "server", "no/such"],
    }


def test_python_is_the_one_that_a_linux_has(take: Taking) -> None:
    config = {"command": "python", "args": ["-m", "main"], "env": {"PYTHONPATH": "${__dirname}/server/lib"}}
    offer = take(manifest(type="python", mcp_config=config))
    assert filled(offer, {})["command"] == "python3"
    assert filled(offer, {})["env"] == {"PYTHONPATH": f"{bundle_of(offer)}/server/lib"}


def test_uv_runs_what_it_finds_and_writes_nothing_there(take: Taking) -> None:
    offer = take({**manifest(), "server": {"type": "uv", "entry_point": "src/server.py"}})
    at = bundle_of(offer)
    args = ["run", "--directory", str(at), "src/server.py"]
    assert filled(offer, {}) == {"command": "uv", "args": args, "env": {"UV_ISOLATED": "1"}}
    config = {"command": "uv", "args": ["run", "${__dirname}/x.py"], "env": {"A": "1"}}
    entry = filled(take(manifest(type="uv", mcp_config=config)), {})
    assert (entry["args"][0], entry["env"]) == ("run", {"UV_ISOLATED": "1", "A": "1"})


ASKED = {
    "key": {
        "type": "string",
        "title": "Key",
        "description": "From the site",
        "sensitive": True,
        "required": True,
    },
    "where": {
        "type": "directory",
        "title": "Where",
        "multiple": True,
        "default": ["${HOME}/a", "${DOCUMENTS}"],
    },
    "debug": {"type": "boolean", "title": "Debug", "default": False},
    "most": {"type": "number", "title": "Most", "default": 10},
    "file": {"type": "file", "title": "File"},
}


def test_what_a_bundle_asks_for_becomes_inputs(take: Taking, home: Path) -> None:
    offer = take(manifest(user_config=ASKED))
    key, where, debug, most, file = offer.inputs
    assert (key.name, key.description, key.required, key.secret) == ("key", "Key: From the site", True, True)
    assert (where.default, where.multiple, where.required) == (f"{home}/a:{home}/Documents", True, False)
    assert (debug.default, debug.choices, most.default) == ("false", ("true", "false"), "10")
    assert (file.default, file.secret) == (None, False)
    assert missing(offer, {}) == [key]


def test_answers_stand_where_the_manifest_says(take: Taking, home: Path) -> None:
    config = {
        "command": "node",
        "args": ["${user_config.where}", "--most=${user_config.most}", "--file=${user_config.file}"],
        "env": {"KEY": "${user_config.key}", "D": "${user_config.debug}", "FILE": "${user_config.file}"},
    }
    offer = take(manifest(user_config=ASKED, mcp_config=config))
    entry = filled(offer, {"key": "${SOME__KEY}", "most": "3"})
    assert entry["args"] == [f"{home}/a", f"{home}/Documents", "--most=3"]
    assert entry["env"] == {"KEY": "${SOME__KEY}", "D": "false"}
    several = filled(offer, {"key": "k", "where": "/x:${HOME:-/y}/z", "file": "/f"})
    assert several["args"] == ["/x", "${HOME:-/y}/z", "--most=10", "--file=/f"]
    assert several["env"]["FILE"] == "/f"


def test_a_setting_that_is_not_asked_for_is_text(take: Taking) -> None:
    offer = take(manifest(mcp_config={"command": "node", "args": ["${user_config.no}"]}))
    assert parsed(filled(offer, {}), {}) == ["${user_config.no}"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"manifest_version": "0.5"}, "it is of version 0.5"),
        ({"manifest_version": None}, "it is of version None"),
        (
            {"compatibility": {"platforms": ["darwin", "win32"]}},
            "for darwin, win32; mcpd takes 0.1 to 0.4, for Linux",
        ),
        ({"server": None}, "its manifest.json does not fit"),
        ({"name": ["x"]}, "its manifest.json does not fit"),
        ({"server": {**manifest()["server"], "mcp_config": None}}, "its manifest.json does not fit"),
        ({"server": {"type": "node", "entry_point": "x"}}, "'command'"),
        ({"user_config": {"a": 1}}, "its manifest.json does not fit"),
        ({"user_config": []}, "its manifest.json does not fit"),
        ({"server": {"type": "node", "entry_point": "x", "mcp_config": {"args": []}}}, "'command'"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(change: dict[str, Any], told: str, take: Taking) -> None:
    with pytest.raises(SourceTrouble, match=told):
        take({**manifest(), **change})
    assert not (take.directory / "data").exists()


@pytest.mark.parametrize("text", ["", "[]", "{", '"x"', "null", "[" * 100_000, "\x00"])
def test_what_is_no_manifest_is_refused(text: str, tmp_path: Path, environ: Mapping[str, str]) -> None:
    path = tmp_path / "some.mcpb"
    path.write_bytes(packed({"manifest.json": text}))
    with pytest.raises(SourceTrouble, match="the bundle is refused, and nothing is unpacked"):
        bundles.taken(path, environ=environ)


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip", packed({"other": ""})])
def test_what_is_no_bundle_is_refused(content: bytes, tmp_path: Path, environ: Mapping[str, str]) -> None:
    (tmp_path / "some.mcpb").write_bytes(content)
    with pytest.raises(SourceTrouble, match="the bundle is refused, and nothing is unpacked"):
        bundles.taken(tmp_path / "some.mcpb", environ=environ)
    with pytest.raises(SourceTrouble, match="No such file"):
        bundles.taken(tmp_path / "none.mcpb", environ=environ)


def test_another_hash_is_refused_and_the_right_one_is_not(
    tmp_path: Path, environ: dict[str, str], home: Path
) -> None:
    path = tmp_path / "some.mcpb"
    path.write_bytes(packed({"manifest.json": json.dumps(manifest())}))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(SourceTrouble, match=f"its SHA-256 is {digest}, not {'0' * 64}"):
        bundles.taken(path, environ=environ, sha256="0" * 64)
    assert not (tmp_path / "data").exists()
    for spelling in (digest, digest.upper(), f"sha256:{digest}"):
        assert bundles.taken(path, environ=environ, sha256=spelling).origin.hash == f"sha256:{digest}"


def test_a_url_is_fetched(tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetch(url: str, **how: Any) -> bytes:
        asked.append((url, how["private"]))
        return packed({"manifest.json": json.dumps(manifest())})

    monkeypatch.setattr(bundles, "fetch", fetch)
    bundles.taken("https://example.com/some.mcpb", environ=environ, private=True)
    bundles.taken("https://example.com/some.mcpb", environ=environ)
    assert asked == [("https://example.com/some.mcpb", True), ("https://example.com/some.mcpb", False)]


def origin_of(offer: ServerOffer) -> dict[str, Any]:
    return attrs.asdict(offer.origin)


def test_a_bundle_is_removed_with_all_that_is_in_it(take: Taking) -> None:
    offer = take(manifest(), "server/index.js", "server/lib/a.js")
    directory = bundle_of(offer)
    assert bundles.remove(origin_of(offer), take.environ, "{}") == directory
    assert [*directory.parent.iterdir()] == []
    assert bundles.remove(origin_of(offer), take.environ, "{}") is None


def test_a_bundle_that_another_entry_uses_stays(take: Taking) -> None:
    offer = take(manifest(), "server/index.js")
    again = take(manifest(), "server/index.js")
    assert bundle_of(again) == bundle_of(offer)
    text = json.dumps({"mcpServers": {"other": filled(again, {})}})
    assert bundles.remove(origin_of(offer), take.environ, text) is None
    assert (bundle_of(offer) / "server" / "index.js").is_file()


@pytest.mark.parametrize(
    "elsewhere",
    [
        *("", ".", "/", "..", "{root}", "{root}/..", "{root}/.", "{root}/one", "{root}/../kept-0123456789ab"),
        *(
            "{root}/{name}/..",
            "{root}/{name}/server",
            "{home}",
            "{root}/linked-0123456789ab",
            "kept-0123456789ab",
        ),
    ],
)
def test_nothing_but_a_bundle_is_removed(elsewhere: str, take: Taking, home: Path) -> None:
    directory = bundle_of(take(manifest(), "server/index.js"))
    root = directory.parent
    (root.parent / "kept-0123456789ab").mkdir()
    (root / "one").mkdir()
    (root / "linked-0123456789ab").symlink_to(home)
    (home / "file").touch()
    before = sorted(take.directory.rglob("*"))
    written = elsewhere.format(root=root, home=home, name=directory.name)
    assert bundles.remove({"bundle": written}, take.environ, "{}") is None
    assert sorted(take.directory.rglob("*")) == before


@pytest.mark.parametrize("origin", [None, {}, {"bundle": None}, {"bundle": 3}, "x", ["x"]])
def test_an_entry_without_a_bundle_has_nothing_to_remove(origin: Any, environ: Mapping[str, str]) -> None:
    assert bundles.remove(origin, environ, "{}") is None


def test_a_link_within_a_bundle_is_removed_and_not_followed(take: Taking, home: Path) -> None:
    directory = bundle_of(take(manifest(), "server/index.js"))
    (home / "file").touch()
    directory.chmod(0o755)
    (directory / "link").symlink_to(home)
    directory.chmod(0o555)
    assert bundles.remove({"bundle": str(directory)}, take.environ, "{}") == directory
    assert (home / "file").exists()


def parsed(entry: Mapping[str, Any], environ: Mapping[str, str]) -> list[str]:
    """The arguments that mcpd would give to the server."""
    read = parse(json.dumps({"mcpServers": {"s": entry}}), source="mcpd.json", environ=environ)
    return [*read.mcp_servers["s"].args]


# Pieces of which references are made, in mcpd's spelling and in others'.
PIECES = st.sampled_from(
    [
        *(
            "$",
            "{",
            "}",
            "${",
            "$$",
            ":",
            "-",
            "file:",
            "env:",
            "input:a",
            "KEY",
            "$KEY",
            "a",
            "~/",
            "/k",
            "run:",
        ),
        *("run:", "${user_config.a}", "${user_config.b}", "${user_config.c}", "${HOME}", "${__dirname}"),
    ]
)
TEXTS = st.lists(PIECES, max_size=6).map("".join)


@given(st.lists(TEXTS, min_size=1, max_size=3), TEXTS, TEXTS, st.lists(TEXTS, max_size=3))
@settings(deadline=None, max_examples=400)
def test_no_text_of_a_bundle_becomes_a_reference(
    args: list[str], first: str, second: str, several: list[str]
) -> None:
    asked = {
        "a": {"type": "string", "default": first},
        "b": {"type": "string", "default": second},
        "c": {"type": "directory", "multiple": True, "default": several},
    }
    written = manifest(user_config=asked, mcp_config={"command": "node", "args": args})
    environ = {"HOME": "/h", "XDG_DATA_HOME": "/d"}
    entry = filled(bundles._offer(written, "0" * 64, environ, set()), {})
    entry["env"] = {f"X{at}": word for at, word in enumerate(entry.get("args", ()))}
    text, known = json.dumps({"mcpServers": {"s": entry}}), {"KEY": KEY, "HOME": "/h"}
    server = parse(text, source="/c/mcpd.json", environ=known).mcp_servers["s"]
    assert not server.substituted
    assert KEY not in json.dumps([*server.args, *server.env.values()])
