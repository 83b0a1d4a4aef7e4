"""Writes gold_advice for the sidecars: to a file (document.py) or a compacted topic (topic.py).

The topic gets a record for each cluster and service, through a sidecar's HTTP API. docs/advice.md and
docs/advice.schema.json describe the document.
"""
