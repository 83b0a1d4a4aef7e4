"""Spans by OpenTelemetry, sent by OTLP over HTTP. Loaded with `tracing = otlp` only: extra `otel`."""
