"""The sidecar: HTTP in front of client_core. It uses the client by its face only and knows nothing of Kafka's wire."""
