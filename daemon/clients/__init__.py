"""One client: its requests, sessions, calls and notifications."""
