"""Small rooms, short functions, a test file for each module: limits that a reviewer would forget to count."""

import ast
import runpy
from collections.abc import Iterator, Mapping
from functools import cache
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent

MIRRORS = ("tests/unit", "tests/process")
"""Folders in which a module's test stands at the module's own place."""

LONGEST_FILE, MEDIAN_FILE = 350, 200
LONGEST_FUNCTION, LONG_FUNCTION, MEDIAN_FUNCTION = 50, 30, 8

# Modules whose test is not at the mirrored place, and where it is instead. A package's own code (its __init__)
# is tested by a file of the package's name inside its folder, as that of daemon/cli by
# tests/process/cli/test_cli.py.
COVERED_ELSEWHERE: dict[str, str] = {
    # The wiring is run by each daemon that a test makes.
    "daemon/tree/core.py": "tests/process/tree/test_running.py",
    "daemon/tree/wiring.py": "tests/process/tree/test_running.py",
    # Frozen values and Protocols: what operators' commands see of clients is what their tests look at.
    "daemon/operators/clients.py": "tests/unit/operators/test_calls.py",
    # One line, told by whoever asks for a status.
    "daemon/operators/metrics.py": "tests/unit/operators/test_status_servers.py",
    # What browsers meet: headers, cookies, forms of others, streams, the line on top of each page.
    "daemon/console/streams.py": "tests/unit/console/test_application.py",
    # What the actor opens.
    "daemon/clients/doors/http/console.py": "tests/process/actors/test_console.py",
    # Three lines, which only a real `python -m daemon` runs.
    "daemon/__main__.py": "tests/process/cli/test_cli.py",
    # A real login tells and hears each message, and runs the process as it is started.
    "daemon/authorization/__main__.py": "tests/process/authorization/test_login.py",
    "daemon/authorization/messages.py": "tests/process/authorization/test_login.py",
    # What is said of each failure, where that failure is met.
    "daemon/authorization/explaining.py": "tests/unit/authorization/test_login_refused.py",
    # What the SDK is handed is tried by the logins that it does.
    "daemon/authorization/sdk_client.py": "tests/process/authorization/test_login.py",
    # Frozen values with defaults: what they take is tested where files are read into them.
    "daemon/config/model.py": "tests/unit/config/test_structure.py",
    "daemon/config/categories.py": "tests/unit/config/test_structure.py",
    "daemon/config/tuning.py": "tests/unit/config/test_structure.py",
    # Frozen values: the table of clients is made of them.
    "daemon/setup/clients/programs.py": "tests/unit/setup/clients/test_known_programs.py",
    # What two surfaces share is tested through both of them.
    "daemon/surfaces/by_category.py": "tests/unit/surfaces/test_category.py",
    # Frozen values: the store's tests write and read them, the call path's work with what sessions share.
    "daemon/catalog/remembered.py": "tests/process/state/test_store.py",
    "daemon/clients/context.py": "tests/unit/clients/test_call.py",
    # One session is what `sessions` makes, recalls and judges.
    "daemon/clients/session_state.py": "tests/unit/clients/test_sessions.py",
    # What requests work with, and what they are answered: seen by a client of a real session.
    "daemon/clients/connection.py": "tests/unit/actors/test_session.py",
    "daemon/clients/requests/initialize.py": "tests/unit/actors/test_session.py",
    "daemon/clients/requests/subscriptions.py": "tests/unit/actors/test_session.py",
    "daemon/clients/requests/tools.py": "tests/unit/actors/test_session.py",
    # Seen by clients of a real session: what is dropped, owed and forwarded.
    "daemon/clients/told.py": "tests/unit/clients/requests/test_logging.py",
    "daemon/clients/task_calls.py": "tests/unit/clients/requests/test_tasks.py",
    # A Protocol, checked by mypy against the fake that stands for it.
    "daemon/clients/member.py": "tests/unit/clients/members.py",
    "daemon/state/values.py": "tests/process/state/test_store.py",
    # The recorder's own half that knows no trio task: what it does shows in what the recorder does.
    "daemon/state/rounds.py": "tests/unit/actors/test_recorder.py",
    # What other daemons have written takes two of them.
    "daemon/state/looks.py": "tests/unit/actors/test_recorder_shared.py",
    # Who employs actors is seen by what becomes of real children.
    "daemon/upstreams/supervised.py": "tests/process/upstreams/test_servers.py",
    "daemon/upstreams/server_actors.py": "tests/process/upstreams/instances/test_server_instances.py",
    "daemon/upstreams/instances/instanced.py": "tests/process/upstreams/instances/test_server_instances.py",
    "daemon/upstreams/instances/resting.py": "tests/process/upstreams/instances/test_server_instances.py",
    # Protocols, checked by mypy against the fakes that stand for them.
    "daemon/ports.py": "tests/unit/clients/test_call.py",
}


parsed = cache(ast.parse)
"""Each of three rules looks at the whole house."""


def has_code(source: str) -> bool:
    """Anything but a docstring, imports and dunder constants."""
    return any(not _is_furniture(node) for node in parsed(source).body)


def _is_furniture(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom():
            return True
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name.startswith("__") and name.endswith("__")
    return False


def functions(source: str) -> Iterator[tuple[str, int]]:
    """Name and length of every function that does something; a nested one also counts for its host."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = _without_docstring(node)
            # A stub of a Protocol is no short function: counting them would make room for long ones.
            if any(not _is_stub(statement) for statement in body):
                yield f"{node.name}:{node.lineno}", _length(node, body)


def _without_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    return node.body[1:] if ast.get_docstring(node) is not None else node.body


def _is_stub(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is ...


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef, body: list[ast.stmt]) -> int:
    docstring = node.body[0]
    spared = 0 if body is node.body else (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return (node.end_lineno or node.lineno) - node.lineno + 1 - spared


def percentile_90(lengths: list[int]) -> int:
    return sorted(lengths)[ceil(0.9 * len(lengths)) - 1]


def file_faults(sources: Mapping[str, str]) -> Iterator[str]:
    lengths = {path: len(source.splitlines()) for path, source in sources.items() if has_code(source)}
    for path, length in lengths.items():
        if length > LONGEST_FILE:
            yield f"{path} has {length} lines, over {LONGEST_FILE}"
    if (middle := median(lengths.values())) > MEDIAN_FILE:
        yield f"the median file has {middle} lines, over {MEDIAN_FILE}"


def function_faults(sources: Mapping[str, str]) -> Iterator[str]:
    lengths: list[int] = []
    for path, source in sources.items():
        for name, length in functions(source):
            lengths.append(length)
            if length > LONGEST_FUNCTION:
                yield f"{path}: {name} has {length} lines, over {LONGEST_FUNCTION}"
    if (long := percentile_90(lengths)) > LONG_FUNCTION:
        yield f"the 90th percentile of functions has {long} lines, over {LONG_FUNCTION}"
    if (middle := median(lengths)) > MEDIAN_FUNCTION:
        yield f"the median function has {middle} lines, over {MEDIAN_FUNCTION}"


def mirrored(path: str) -> set[str]:
    module = Path(path)
    name = module.parent.name if module.stem == "__init__" else module.stem
    return {str(Path(folder, *module.parts[1:-1], f"test_{name}.py")) for folder in MIRRORS}


def cover_faults(sources: Mapping[str, str], tests: set[str], elsewhere: Mapping[str, str]) -> Iterator[str]:
    for path, source in sources.items():
        if not has_code(source):
            continue
        own, named = mirrored(path), elsewhere.get(path)
        if named is not None and own & tests:
            yield f"{path} has a test of its own: its entry in COVERED_ELSEWHERE is stale"
        elif not ({named} if named else own) & tests:
            yield f"{path} is tested nowhere: there is no {named or ' and no '.join(sorted(own))}"
    for path in elsewhere.keys() - sources.keys():
        yield f"COVERED_ELSEWHERE names {path}, which does not exist"


def package_faults(tests: set[str]) -> Iterator[str]:
    """Without an __init__.py a second test_model.py would be a module of the same name: one would not run."""
    for path in sorted(tests):
        if Path(path).name.startswith("test_") and str(Path(path).parent / "__init__.py") not in tests:
            yield f"{path} is in a folder without __init__.py"


@cache
def daemon() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "daemon").rglob("*.py")}


def our_tests() -> set[str]:
    return {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*.py")}


def test_no_file_of_the_daemon_is_large() -> None:
    faults = list(file_faults(daemon()))
    assert not faults, "\n".join(faults)


def test_the_functions_of_the_daemon_are_short() -> None:
    faults = list(function_faults(daemon()))
    assert not faults, "\n".join(faults)


def test_each_module_of_the_daemon_has_its_tests() -> None:
    faults = list(cover_faults(daemon(), our_tests(), COVERED_ELSEWHERE))
    assert not faults, "\n".join(faults)


def test_each_folder_of_tests_is_a_package() -> None:
    faults = list(package_faults(our_tests()))
    assert not faults, "\n".join(faults)


HOUSE = runpy.run_path(str(ROOT / "scripts" / "house"))
"""How classes, rooms and floors are counted, and their limits; `test_house.py` tests the counting."""


@pytest.fixture(scope="module")
def modules() -> Any:
    return HOUSE["modules"](ROOT, "daemon")


@pytest.mark.parametrize(("count", "limit"), [("methods", "METHODS"), ("parameters", "PARAMETERS")])
def test_classes_are_small_and_constructors_narrow(modules: Any, count: str, limit: str) -> None:
    counted = HOUSE[count](modules)
    assert counted
    assert not [each for each in counted if each[0] > HOUSE[limit]]


def test_a_class_name_means_one_class(modules: Any) -> None:
    assert not HOUSE["twice"](modules)


def test_few_modules_are_loose_and_rooms_are_few_floors_high(modules: Any) -> None:
    loose = [each.name for each in modules if each.name.count(".") == 1 and each.path.name != "__init__.py"]
    assert 0 < len(loose) <= HOUSE["LOOSE"], loose
    floors, is_circle = HOUSE["floors"](modules)
    assert not is_circle, floors
    assert 0 < len(floors) <= HOUSE["FLOORS"], floors


def function(lines: int) -> str:
    return "def f():\n" + "    x = 1\n" * (lines - 1)


@pytest.mark.parametrize(
    ("sources", "faults"),
    [
        ({"a": "x = 1\n" * 350, "b": "x = 1\n", "c": "x = 1\n"}, 0),
        ({"a": "x = 1\n" * 351, "b": "x = 1\n", "c": "x = 1\n"}, 1),
        ({"a": "x = 1\n" * 201}, 1),
        ({"a": "x = 1\n" * 201, "b": '"""Nothing."""\n', "c": "from x import y\n__all__ = ['y']\n"}, 1),
        ({"a": "x = 1\n" * 200}, 0),
    ],
)
def test_files_are_counted(sources: dict[str, str], faults: int) -> None:
    assert len(list(file_faults(sources))) == faults


SHORT = function(2) * 20


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        (SHORT + function(50), 0),
        (SHORT + function(51), 1),
        (SHORT + function(51).replace("def", "async def"), 1),
        (SHORT + function(50).replace("():\n", '():\n    """Two\n    lines."""\n'), 0),
        (SHORT + function(31) * 2, 0),
        (SHORT + function(31) * 3, 1),
        (function(8), 0),
        (function(9), 1),
        (function(9) + "def stub(): ...\n" * 20, 1),
    ],
)
def test_functions_are_counted(source: str, faults: int) -> None:
    assert len(list(function_faults({"a": source}))) == faults


HERE = MIRRORS[0]


@pytest.mark.parametrize(
    ("path", "tests", "elsewhere", "faults"),
    [
        ("daemon/a/b.py", {f"{HERE}/a/test_b.py"}, {}, 0),
        ("daemon/b.py", {f"{HERE}/test_b.py"}, {}, 0),
        ("daemon/a/__init__.py", {f"{HERE}/a/test_a.py"}, {}, 0),
        ("daemon/a/b.py", {f"{HERE}/test_b.py"}, {}, 1),
        ("daemon/a/b.py", {"tests/e2e/test_x.py"}, {"daemon/a/b.py": "tests/e2e/test_x.py"}, 0),
        ("daemon/a/b.py", {f"{HERE}/a/test_c.py"}, {"daemon/a/b.py": "tests/e2e/test_x.py"}, 1),
        ("daemon/a/b.py", {f"{HERE}/a/test_b.py", "t.py"}, {"daemon/a/b.py": "t.py"}, 1),
        ("daemon/a/b.py", {f"{HERE}/a/test_b.py"}, {"daemon/gone.py": "tests/a/test_b.py"}, 1),
    ],
)
def test_cover_is_counted(path: str, tests: set[str], elsewhere: dict[str, str], faults: int) -> None:
    assert len(list(cover_faults({path: "x = 1\n"}, tests, elsewhere))) == faults


def test_a_module_without_code_needs_no_test() -> None:
    assert not list(cover_faults({"daemon/a/__init__.py": '"""Words."""\n'}, set(), {}))


def test_a_folder_without_init_is_found() -> None:
    assert not list(package_faults({"tests/a/test_b.py", "tests/a/__init__.py"}))
    assert len(list(package_faults({"tests/a/test_b.py", "tests/__init__.py"}))) == 1
