"""Spool: stores accepted records on the sidecar's disk, bounded, until Kafka has them."""
