"""Kafka's protocol: messages as typed modules that are generated, and what they are made of."""
