"""The native API, /v1: FastAPI routes, their schemas, the OpenAPI document."""
