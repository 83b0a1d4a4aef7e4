"""The gold tables as one HTML file for people: what to do about it first, then what it is computed from.

    gold (reading) ──▶ view (a cluster's tables) ──▶ findings (sentences) ─┐
                                                └──▶ sections, figures ────┴──▶ page (one file)

No script, nothing from elsewhere, the same bytes for the same tables. `pilotfish-pipeline report` is the
command, `report_html` what it calls.
"""

from pipeline.report.page import report_html

__all__ = ["report_html"]
