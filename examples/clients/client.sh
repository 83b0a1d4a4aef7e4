# Which broker leads this key's partition, and a record for it: with curl. Run by `sh client.sh`.
api="${SIDECAR_URL:-http://127.0.0.1:8085}/v1/topics/demo"
curl --fail-with-body --silent --show-error "$api/leader?key=customer-7" && echo
curl --fail-with-body --silent --show-error "$api/records" --header 'Content-Type: application/json' \
  --data '{"records":[{"key":"customer-7","value":{"total":12.5}}]}' && echo
