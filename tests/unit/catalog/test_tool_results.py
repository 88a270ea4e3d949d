"""Results of tools as JSON, which nothing on its way to a script decodes."""

import json

import pytest

from daemon.catalog.tool_results import json_in

IMAGE = '[{"type":"image","data":"eA==", "mimeType":"image/png"}]'


@pytest.mark.parametrize(
    ("result", "found"),
    [
        ('{"content":[],"structuredContent":{"a" : 1.50}}', '{"a" : 1.50}'),
        (json.dumps({"content": [{"type": "text", "text": '{"a" : 1.50}'}]}), '{"a" : 1.50}'),
        (json.dumps({"content": [{"type": "text", "text": "[1, 2"}]}), '"[1, 2"'),
        (f'{{"content":{IMAGE}}}', IMAGE),
        ('{"content":[],"isError":true}', "null"),
        ("[]", "null"),
    ],
)
def test_json_is_taken_from_a_result_as_it_was_written(result: str, found: str) -> None:
    assert bytes(json_in(result.encode())).decode() == found
