"""What the recorder is made of: its notes, the thread that uses the store, and what is told of both."""
