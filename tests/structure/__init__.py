"""Packages, the imports between them, sizes of modules, and the code that one request runs."""
