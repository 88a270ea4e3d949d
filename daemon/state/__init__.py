"""What outlives the daemon: server epochs, tools, summaries, sessions and switches, in SQLite or PostgreSQL.

`store` and the modules below it (`sql`, `migrations`, `reading`, `writing`) are a synchronous library, called
from one worker thread. The other modules belong to the recorder: notes of what is not written yet, and the
handling of failures.
"""
