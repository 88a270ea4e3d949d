"""The transports to servers: each opens a `ports.UpstreamConnection` as an async context manager.

The HTTP and SSE modules stand on the `mcp` SDK, whose import costs 0.6 s and 63 MiB: `opening` loads a
transport by name, in a thread, when a server that needs it is first started.
"""
