"""The state that outlives the daemon: epochs, tools, approvals, summaries, sessions, switches, in a database.

`store` and the modules below it (`sql`, `reader`, `writer`, `event_rows`) are a synchronous library, called
from one worker thread. The others belong to the recorder: notes of unwritten changes, and the handling of
failures.
"""
