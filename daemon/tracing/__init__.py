"""OpenTelemetry: each client's call as a trace, metrics and events, sent to a collector."""
