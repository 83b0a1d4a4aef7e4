"""The native API, /v1: FastAPI's routes, their schemas, the OpenAPI document."""
