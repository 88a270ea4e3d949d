"""The console: pages for a browser on the HTTP door, loaded with the first request."""
