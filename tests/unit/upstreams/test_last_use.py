"""When a server was last used."""

import math
from typing import Any

from trio.testing import MockClock

from daemon.config.config_model import Instance, Server, Share, TransportType
from daemon.counting.tally import CallStats
from daemon.upstreams.upstream_access import INSTANCE_IDLE, idle_seconds, last_use_of


def server(**more: Any) -> Server:
    return Server(name="s", type=TransportType.STDIO, command="run", **more)


def test_what_all_share_runs_for_ever_and_an_instance_for_ten_minutes_without_use() -> None:
    assert idle_seconds(server()) == math.inf
    assert idle_seconds(server(share=Share.SESSION)) == INSTANCE_IDLE
    assert idle_seconds(server(share=Share.SESSION, idle=5.0)) == idle_seconds(server(idle=5.0)) == 5.0


def test_nothing_is_noted_where_nothing_depends_on_it() -> None:
    assert last_use_of(server()) is None
    assert last_use_of(server(idle=5.0)) is not None
    assert last_use_of(server(share=Share.WORKSPACE, instance=Instance(label="s@"))) is not None


async def test_the_end_of_a_call_is_use_and_is_counted(mock_clock: MockClock) -> None:
    use = last_use_of(server(idle=5.0))
    assert use is not None
    assert use.due == -math.inf
    use.note()
    began = use.due
    mock_clock.jump(3)
    stats = CallStats(), CallStats()
    use.counted([0.1], ok=True, stats=stats)
    assert use.due == began + 3
    assert [each.calls for each in stats] == [1, 1]
