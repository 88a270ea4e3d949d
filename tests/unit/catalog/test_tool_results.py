"""Results of tools as JSON, which nothing on its way to a script decodes."""

from daemon.catalog.tool_results import json_in
from tests.unit.cases import cases


@cases("result", "found")
def test_json_is_taken_from_a_result_as_it_was_written(result: str, found: str) -> None:
    assert bytes(json_in(result.encode())).decode() == found
