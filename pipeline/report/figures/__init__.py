"""The plots of the report, drawn by matplotlib; the page's style sheet sets colours and fonts."""
