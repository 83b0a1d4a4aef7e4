"""The typed routes of FastAPI: the document, the errors and the slow paths behind the plain-ASGI fast ones."""
