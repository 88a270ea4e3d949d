"""The state that outlives the daemon: the store, which one worker thread uses, and the recorder's notes."""
