"""HTTP and JSON building blocks shared by all APIs: ASGI, errors, strict JSON, streams."""
