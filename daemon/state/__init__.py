"""The state that outlives the daemon: `store` and below, from one worker thread, and the recorder's notes."""
