"""`scripts/house` counts what the code base is meant to be, each thing on a small tree; its ceilings fall."""

import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cases import cases

ROOT = Path(__file__).parents[2]
HOUSE = runpy.run_path(str(ROOT / "scripts" / "house"))

WIDE = ", ".join(f"a{number}" for number in range(9))
LONG = "    x = 1\n" * 49


def methods(*names: str) -> str:
    return "".join(f"    def {name}(self): ...\n" for name in names)


MANY = [f"m{number}" for number in range(20)]


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


def test_docstrings_and_words_of_documents_are_counted(tmp_path: Path) -> None:
    files = {
        "daemon/a.py": '"""One\ntwo."""\nx = 1\n"""Three."""\n',
        "README.md": "one two\n",
        "docs/a.md": "three",
        "CHANGELOG.md": "not counted",
    }
    assert counted(tmp_path, files, "docstring_lines") == 3
    assert counted(tmp_path, files, "document_words") == 3


def test_modules_are_counted_and_those_that_stand_loose(tmp_path: Path) -> None:
    files = {"daemon/a.py": "", "daemon/b/__init__.py": "", "daemon/b/c.py": "", "daemon/__main__.py": ""}
    assert counted(tmp_path, files, "modules") == 3
    assert counted(tmp_path, files, "loose_modules") == ["daemon.a"]


@cases("files", "floors")
def test_floors_are_the_longest_way_of_imports_from_room_to_room(
    files: dict[str, str], floors: float, tmp_path: Path
) -> None:
    assert counted(tmp_path, files, "floors")[0] == floors


@cases("source", "large")
def test_methods_are_counted_with_those_that_are_inherited_from_classes_of_ours(
    source: str, large: list[str], tmp_path: Path
) -> None:
    assert counted(tmp_path, {"daemon/a.py": source}, "large_classes") == large


@pytest.mark.parametrize(
    ("key", "source", "over"),
    [
        ("wide_constructors", f"class B:\n    def __init__(self, {WIDE}): ...\n", ["9 daemon.a B"]),
        ("wide_constructors", f"class B:\n    def __init__(self, {WIDE.removeprefix('a0, ')}): ...\n", []),
        ("long_functions", f"def f():\n{LONG}", []),
        ("long_functions", f"async def f():\n{LONG}    x = 1\n", ["51 daemon.a f:1"]),
        ("long_functions", f'def f():\n    """Words."""\n{LONG}', []),
        ("long_modules", "x = 1\n" * 401, ["401 daemon.a"]),
        ("long_modules", '"""Words."""\n' + "x = 1\n" * 400, []),
        ("crumbs", "x = 1\n" * 40, []),
        ("crumbs", "x = 1\n" * 39, ["39 daemon.a"]),
    ],
)
def test_what_is_over_a_limit_is_named(key: str, source: str, over: list[str], tmp_path: Path) -> None:
    assert counted(tmp_path, {"daemon/a.py": source}, key) == over


def test_the_rows_of_a_table_are_no_crumbs(tmp_path: Path) -> None:
    files = {"daemon/operators/stop.py": "x = 1", "daemon/wire/link.py": "x = 1", "daemon/wire/__init__.py": ""}
    assert counted(tmp_path, files, "crumbs") == ["1 daemon.wire.link"]


def test_a_class_name_is_used_once(tmp_path: Path) -> None:
    files = {
        "daemon/a.py": "class A: ...",
        "daemon/b.py": "class A: ...\nclass B: ...",
        "tests/b.py": "class B: ...",
    }
    assert counted(tmp_path, files, "repeated_class_names") == ["A: daemon.a, daemon.b"]


def test_a_file_name_is_used_once_in_a_process(tmp_path: Path) -> None:
    files = {
        "daemon/wire/events.py": "",
        "daemon/cli/events.py": "",
        "daemon/cli/asking/calls.py": "",
        "daemon/cli/calls.py": "",
        "daemon/state/events.py": "",
        "daemon/state/__init__.py": "",
        "daemon/wire/__init__.py": "",
    }
    assert counted(tmp_path, files, "repeated_file_names") == [
        "calls in cli: daemon.cli.asking.calls, daemon.cli.calls",
        "events in the daemon: daemon.state.events, daemon.wire.events",
    ]


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


def test_a_circle_is_found_through_functions_and_later(tmp_path: Path) -> None:
    files = {
        "daemon/a.py": "def f():\n    import daemon.b",
        "daemon/b.py": 'x = later("daemon.c")',
        "daemon/c.py": "from daemon import a",
        "daemon/d.py": "import daemon.a",
    }
    found = counted(tmp_path, files, "modules_in_circles")
    assert found == [f"daemon.{name}: in a circle of 3" for name in "abc"]


def test_the_exit_status_tells_whether_all_is_met(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"daemon/a.py": "class A: ...\n", "daemon/b.py": "class A: ...\n"}
    assert HOUSE["main"]([str(bounded(tmp_path, files))]) == 0
    assert "OVER" not in capsys.readouterr().out
    assert HOUSE["main"]([str(bounded(tmp_path, files, repeated_class_names=0)), "--list"]) == 1
    said = capsys.readouterr().out
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
