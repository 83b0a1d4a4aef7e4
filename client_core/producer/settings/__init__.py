"""The producer's configuration: Kafka's options, their types, defaults and limits."""
