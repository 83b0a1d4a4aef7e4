"""The same core in the words of others: REST Proxy v2 and v3, CloudEvents, Dapr. Each can be switched off."""
