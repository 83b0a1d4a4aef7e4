"""The Grafana dashboard of Pilotfish, built in code; writes helm/pilotfish/files/dashboard.json.

    __main__.py    python -m helm.dashboard writes the file, --check compares it
    board.py       the dashboard: its variables and the order of its rows
    rows.py        the rows: metadata, brokers, records, HTTP and the process
    health.py      the first row: is it healthy?
    vocabulary.py  the kinds of panels and queries

Tests parse every query, and look for every metric and label in a scrape. Not part of the installed program.
"""
