"""Which broker leads this key's partition, and a record for it: with Python and requests."""

import os

import requests

API = os.environ.get("SIDECAR_URL", "http://127.0.0.1:8085") + "/v1/topics/demo"
print(requests.get(f"{API}/leader", params={"key": "customer-7"}, timeout=10).text)
records = {"records": [{"key": "customer-7", "value": {"total": 12.5}}]}
answer = requests.post(f"{API}/records", json=records, timeout=150)
print(answer.text)
answer.raise_for_status()
