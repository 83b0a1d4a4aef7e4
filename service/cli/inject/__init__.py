"""`pilotfish inject`: adds the sidecar to Kubernetes manifests."""
