"""The state that outlives the daemon: epochs, tools, summaries, sessions and switches, in SQLite or PostgreSQL.

`store` and the modules below it (`sql`, `reader`, `writer`, `event_rows`) are a synchronous library, called
from one worker thread. The others belong to the recorder: notes of unwritten changes, and the handling of
failures.
"""
