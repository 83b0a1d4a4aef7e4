"""OpenTelemetry spans, sent by OTLP over HTTP. Imported with `tracing = otlp` only: extra `otel`."""
