# sh examples/send/send.sh TOPIC TEXT [KEY]. TEXT is put into JSON as it is: it may have no quotes and no backslashes.
key="${3:-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')}"  # one key for all attempts
url="${PILOTFISH_URL:-http://127.0.0.1:8085}/v1/topics/$1/records?max_block_ms=2000&timeout_ms=4000"
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT

# curl itself repeats after 408, 429, 500, 502, 503, 504 and its own timeout, obeys Retry-After, and says so.
status=$(curl --no-progress-meter --noproxy '*' --output "$answer" --write-out '%{http_code}' \
  --connect-timeout 2 --max-time 6 --retry 7 --retry-delay 1 --retry-connrefused \
  --header 'Content-Type: application/json' --header "Idempotency-Key: $key" \
  --data-raw "{\"records\":[{\"value\":{\"text\":\"$2\"}}]}" "$url")

case "$status" in
  200) cat "$answer"; echo ;;
  000 | 408 | 429 | 503 | 504)
    cat "$answer" >&2
    echo "status $status, try later: sh $0 '$1' '$2' $key" >&2; exit 75 ;;
  *) cat "$answer" >&2; echo >&2; exit 1 ;;
esac
