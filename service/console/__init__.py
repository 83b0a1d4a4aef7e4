"""Pages for people: the console at `/` and the API's reference at `/docs`, whole from our own origin.

`pages.py` says what is served where, and how; `page/` is what the browser gets, as it is written
there: HTML, one style sheet and JavaScript modules, with no build step and no third party.
"""

from service.console.pages import DOCS, OPEN_PATHS, PAGE_PATHS, console_routes, docs_error_format

__all__ = ["DOCS", "OPEN_PATHS", "PAGE_PATHS", "console_routes", "docs_error_format"]
