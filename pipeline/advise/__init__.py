"""gold_advice on its way to the sidecars: a document in a file, and records of a compacted topic.

table ──▶ document ──▶ file     whole or not at all; what a ConfigMap holds
                  └──▶ topic    a record for each cluster and service, through a sidecar's HTTP API

docs/advice.md and docs/advice.schema.json describe the document. The sidecar's side is its own business.
"""
