"""The console: pages for a browser on the HTTP door, which the first request loads."""
