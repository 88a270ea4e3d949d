"""OpenTelemetry: a client's call as a trace, metrics and events, for a collector."""
