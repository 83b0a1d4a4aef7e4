"""A bounded log on a disk of the sidecar's own: records that are answered before Kafka has them."""
