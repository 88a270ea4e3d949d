"""What is kept of clients' files."""

import stat
from pathlib import Path

import attrs
import pytest

from daemon.documents import files
from daemon.documents.files import DocumentError, FoundFile, replace
from daemon.documents.formats import Format
from daemon.setup.clients.installing import NamedEntry, Record, Records


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(
        path=tmp_path / "mcp.json",
        form=Format.JSON,
        members=(NamedEntry(("mcpServers",), "é"), NamedEntry(("a",), "b", listed=True)),
        original='\ufeff{"a": "s3cret"}\r\n',
        installed="{}",
    )


def test_a_record_is_kept_for_the_user_alone_and_found_again(tmp_path: Path, record: Record) -> None:
    records = Records(tmp_path / "state")
    assert records.find("cursor", record.path) is None
    records.keep("cursor", record)
    assert records.find("cursor", record.path) == record
    assert records.of("cursor") == [record]
    assert records.of("codex") == []
    for path in (tmp_path / "state" / "clients").rglob("*"):
        if path.is_file():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "s3cret" not in repr(record)


@pytest.mark.parametrize("at", range(3))
def test_a_record_that_cannot_be_replaced_is_the_former_one(
    at: int, tmp_path: Path, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = Records(tmp_path)
    records.keep("cursor", record)
    left = iter(range(at))

    def on_a_disk_that_becomes_full(found: FoundFile, content: bytes, *, private: bool) -> None:
        if next(left, None) is None:
            raise DocumentError("full")
        replace(found, content, private=private)

    monkeypatch.setattr(files, "replace", on_a_disk_that_becomes_full)
    with pytest.raises(DocumentError):
        records.keep("cursor", attrs.evolve(record, original="other", installed="other, too"))
    assert records.find("cursor", record.path) == record


@pytest.mark.parametrize("name", ["original", "installed", "record.json"])
@pytest.mark.parametrize("harm", ["gone", "other", "binary"])
def test_a_record_of_which_a_part_is_not_what_it_was_is_none(
    tmp_path: Path, record: Record, name: str, harm: str
) -> None:
    records = Records(tmp_path)
    records.keep("cursor", record)
    (path,) = records.directory("cursor", record.path).glob(f"{name}*")
    path.unlink()
    if harm != "gone":
        path.write_bytes(b"{}x" if harm == "other" else b"\xff\0")
    assert records.find("cursor", record.path) is None
    assert records.of("cursor") == []


def test_a_record_is_forgotten_with_its_backup_or_without(tmp_path: Path, record: Record) -> None:
    records = Records(tmp_path)
    records.keep("cursor", record)
    records.forget("cursor", record.path, leave_backup=True)
    assert records.find("cursor", record.path) is None
    assert [path.name for path in records.directory("cursor", record.path).iterdir()] == ["original"]
    records.forget("cursor", record.path)
    assert not records.directory("cursor", record.path).exists()


def test_one_command_at_a_time_works_on_them(tmp_path: Path) -> None:
    with (
        Records(tmp_path).locked(),
        pytest.raises(DocumentError, match="is running"),
        Records(tmp_path).locked(),
    ):
        pass
    with Records(tmp_path).locked():
        pass
    (tmp_path / "clients.lock").unlink()
    (tmp_path / "clients.lock").mkdir()
    with pytest.raises(DocumentError, match=r"clients\.lock cannot be opened"), Records(tmp_path).locked():
        pass
