"""Writes the gold tables as one HTML file for people: what to do first, then the data behind it.

    gold (reading) ──▶ view (a cluster's tables) ──▶ findings (sentences) ─┐
                                                └──▶ sections, figures ────┴──▶ page (one file)

No script, no external content, the same bytes for the same tables. The command `pilotfish-pipeline report`
calls `report_html`.
"""

from pipeline.report.page import report_html

__all__ = ["report_html"]
