"""HTTP and JSON, as every API of the sidecar uses them: ASGI, errors, strict JSON, streams."""
