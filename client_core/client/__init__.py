"""Requests and answers over channels: connections of nodes, requests in flight, metadata refreshes."""
