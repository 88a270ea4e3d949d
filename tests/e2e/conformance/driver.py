"""The client that the conformance suite tests: mcpd, with the suite's server as its only one.

The suite gives the URL of its server as the last argument, and the scenario in the environment. This program
sends both to the test that runs the suite (`tests/e2e/driving.py`), since imports would take seconds for each
of dozens of scenarios.
"""

import json
import os
import socket
import sys

TEST = "MCPD_TEST_SOCKET"
"""The variable with the path of the test's socket."""


def main() -> int:
    """Returns the exit status of the client."""
    given = {name: value for name, value in os.environ.items() if name.startswith("MCP_CONFORMANCE_")}
    with socket.socket(socket.AF_UNIX) as test:
        test.connect(os.environ[TEST])
        test.sendall(json.dumps({"url": sys.argv[-1], "environ": given}).encode() + b"\n")
        said = json.loads(test.makefile().readline())
    sys.stderr.write(said["log"])
    return int(said["status"])


if __name__ == "__main__":
    sys.exit(main())
