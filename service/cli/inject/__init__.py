"""`pilotfish inject`: the sidecar into manifests of Kubernetes."""
