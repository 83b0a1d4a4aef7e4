"""Web pages from our own origin: the console at `/`, the API reference at `/docs`.

`pages.py` defines paths, files and headers. `page/` holds the files sent to browsers, unchanged: HTML, style
sheets and JavaScript modules, with no build step and no third party.
"""

from service.console.pages import DOCS, OPEN_PATHS, PAGE_PATHS, console_routes, docs_error_format

__all__ = ["DOCS", "OPEN_PATHS", "PAGE_PATHS", "console_routes", "docs_error_format"]
