"""Where the state is kept, and what people are told of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.store import urls
from daemon.store.place import place_of

HERE = Path("/var/lib/mcpd")


def test_without_a_url_it_is_a_file_in_the_state_directory() -> None:
    place = place_of(None, HERE)
    assert (place.path, place.where, place.shared) == (HERE / "state.db", "/var/lib/mcpd/state.db", False)


def test_a_state_directory_may_be_named_from_the_working_directory() -> None:
    place = place_of(None, Path("state"))
    assert place.path == Path.cwd() / "state" / "state.db"
    assert urls.parse(urls.of_file(place.path)).path == place.path


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:////srv/x.db", "/srv/x.db"),
        ("sqlite:////srv/a%20b.db", "/srv/a b.db"),
        ("sqlite+pysqlite:////srv/x.db", "/srv/x.db"),
    ],
)
def test_a_file_that_is_named_is_the_file_that_the_store_opens(url: str, path: str) -> None:
    place = place_of(url, HERE)
    assert (place.path, place.shared) == (Path(path), False)
    assert urls.parse(url).path == place.path


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("postgresql://db/mcpd", "postgresql://db/mcpd"),
        ("postgresql://me:s3cret@db:5432/mcpd", "postgresql://db:5432/mcpd"),
        ("postgresql://me:s3/cret@db/mcpd", "postgresql://db/mcpd"),
        ("postgresql://me:s3@cret@db/mcpd", "postgresql://db/mcpd"),
        ("postgresql://me:s3cret@[::1]/mcpd", "postgresql://[::1]/mcpd"),
        ("postgresql://me:s3?cret@db/mcpd", "postgresql://db/mcpd"),
        ("postgresql://db/mcpd?password=s3cret", "postgresql (state.url)"),
        ("postgresql://db/mcpd?options=a@b&password=s3cret", "postgresql (state.url)"),
    ],
)
def test_no_password_is_shown_whatever_characters_it_has(url: str, where: str) -> None:
    place = place_of(url, HERE)
    assert place.where == where
    assert place.shared
    assert "cret" not in repr(place)


def test_a_place_opens_its_store_and_sets_a_corrupt_one_aside(tmp_path: Path) -> None:
    place = place_of(None, tmp_path / "new directory 100%")
    place.load()
    store = place.open("writer")
    assert store.switched() == frozenset()
    store.close()
    assert place.path is not None
    assert place.path.exists()
    name = place.set_aside(0.0)
    assert "corrupt-19700101-000000" in name
    assert not place.path.exists()
