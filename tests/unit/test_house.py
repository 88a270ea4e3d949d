"""`scripts/house` counts what the code base is meant to be, each thing on a small tree; its ceilings fall."""

import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.printing import out_of
from tests.unit.cases import cases

ROOT = Path(__file__).parents[2]
HOUSE = runpy.run_path(str(ROOT / "scripts" / "house"))

ORDER = {"wire": [["a", "b"], ["c", "part.d"], ["part"], ["*"]]}


def counted(root: Path, files: dict[str, str], key: str) -> Any:
    """The number, or what it consists of, in a tree with these files."""
    for path, source in {"daemon/__init__.py": "", **files}.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(source)
    return getattr(HOUSE["House"](root, ORDER), key)()


def bounded(root: Path, files: dict[str, str], **ceilings: int) -> Path:
    """A tree with these files and with ceilings that it just meets, but for those that are named."""
    data = {"ceilings": dict.fromkeys(HOUSE["COUNTS"], 0), "order": {}}
    counted(root, files, "modules")
    lines = [f"{key} = {ceilings.get(key, number)}" for key, number, *_ in HOUSE["look"](root, data)]
    place = root / "scripts" / "ceilings.toml"
    place.parent.mkdir(exist_ok=True)
    place.write_text("# Words.\n[ceilings]\n" + "\n".join(lines) + "\n\n[order]\n")
    return root


@cases("source", "lines")
def test_code_is_what_is_neither_blank_nor_comment_nor_docstring(
    source: str, lines: int, tmp_path: Path
) -> None:
    assert counted(tmp_path, {"daemon/a.py": source}, "code_lines") == lines
    assert counted(tmp_path, {"tests/a.py": source}, "test_code_lines") == lines


@cases("rule", "files", "key", "found")
def test_a_count_is_a_number_or_names_what_it_counts(
    rule: str, files: dict[str, str], key: str, found: object, tmp_path: Path
) -> None:
    assert counted(tmp_path, files, key) == found, rule


@cases("files", "floors")
def test_floors_are_the_longest_way_of_imports_from_room_to_room(
    files: dict[str, str], floors: float, tmp_path: Path
) -> None:
    assert counted(tmp_path, files, "floors")[0] == floors


@cases("files", "faults")
def test_imports_inside_a_room_go_by_its_order(files: dict[str, str], faults: int, tmp_path: Path) -> None:
    found = counted(
        tmp_path, {f"daemon/wire/{name}.py": source for name, source in files.items()}, "edges_against_order"
    )
    assert len(found) == faults, found


def test_a_module_without_a_place_in_the_order_is_named(tmp_path: Path) -> None:
    place = tmp_path / "daemon" / "wire" / "z.py"
    place.parent.mkdir(parents=True)
    place.touch()
    house = HOUSE["House"](tmp_path, {"wire": [["a"]]})
    assert house.edges_against_order() == ["daemon.wire.z has no place in the order of wire"]


def test_the_exit_status_tells_whether_all_is_met(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"daemon/a.py": "class A: ...\n", "daemon/b.py": "class A: ...\n"}
    assert "OVER" not in out_of(capsys, HOUSE["main"]([str(bounded(tmp_path, files))]))
    said = out_of(capsys, HOUSE["main"]([str(bounded(tmp_path, files, repeated_class_names=0)), "--list"]), 1)
    assert said.count("OVER") == 1
    assert "    A: daemon.a, daemon.b\n" in said


@pytest.mark.parametrize(("ceiling", "status"), [(100, 0), (103, 0), (104, 1), (99, 1)])
def test_a_ceiling_stands_at_most_three_percent_above_the_need(
    ceiling: int, status: int, tmp_path: Path
) -> None:
    root = bounded(tmp_path, {"daemon/a.py": "x = 1\n" * 100}, code_lines=ceiling)
    assert HOUSE["main"]([str(root)]) == status


def test_ceilings_are_lowered_and_never_raised(tmp_path: Path) -> None:
    root = bounded(tmp_path, {"daemon/a.py": "x = 1\n" * 100}, code_lines=200, modules=0)
    assert HOUSE["main"]([str(root), "--lower"]) == 1
    text = (root / "scripts" / "ceilings.toml").read_text()
    assert text.startswith("# Words.\n")
    ceilings = tomllib.loads(text)["ceilings"]
    assert (ceilings["code_lines"], ceilings["modules"]) == (100, 0)
