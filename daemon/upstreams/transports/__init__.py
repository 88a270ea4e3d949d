"""The transports to servers; each opens a `ports.UpstreamConnection` as an async context manager."""
