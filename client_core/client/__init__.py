"""Requests and responses over channels: node connections, requests in flight, metadata refreshes."""
