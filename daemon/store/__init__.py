"""What outlives the daemon: server epochs, tools, summaries, sessions and switches, in SQLite or PostgreSQL.

A synchronous library that is called from worker threads. `store` is the door; `faults` and `values` are what
others need to speak with it and load nothing more. SQLAlchemy is loaded for PostgreSQL alone (`connection`).
"""
