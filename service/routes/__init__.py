"""FastAPI's typed routes: the document, the errors and the slow paths behind the fast ones."""
