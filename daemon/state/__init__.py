"""What outlives the daemon: server epochs, tools, summaries, sessions and switches, in SQLite or PostgreSQL.

`store` and what it stands on (`sql`, `migrations`, `reading`, `writing`) are a synchronous library, called from
one worker thread. The rest is the recorder's: notes of what is not written yet, and what becomes of failures.
"""
