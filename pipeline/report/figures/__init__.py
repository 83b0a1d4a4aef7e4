"""The plots of the report: matplotlib draws, the page's style sheet decides about colours and letters."""
