# sh examples/send/send.sh TOPIC TEXT [KEY]
[ $# -eq 2 ] || [ $# -eq 3 ] || { echo "usage: sh $0 TOPIC TEXT [KEY]" >&2; exit 64; }
key="${3-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')}"  # one key for all attempts
topic=$(printf %s "$1" | od -An -v -tx1 | tr -d '\n' | tr ' ' %)  # every byte as %xx
text=$(printf %s "$2" | sed 's/[\\"]/\\&/g' | awk 'NR > 1 { printf "\\n" } { gsub(/\t/, "\\t"); printf "%s", $0 }')
base="${SIDECAR_URL:-http://127.0.0.1:8085}"
url="${base%/}/v1/topics/$topic/records?max_block_ms=2000&timeout_ms=4000"
answer=$(mktemp) said=$(mktemp)
trap 'rm -f "$answer" "$said"' EXIT
field() { grep -oE "\"$1\":\"([^\"\\\\]|\\\\.)*" "$answer" | head -n 1 | cut -d '"' -f 4-; }

for attempt in 1 2 3 4 5 6 7 8; do
  : > "$answer"
  # --max-time is longer than timeout_ms. curl prints the headers, then the status, and says why there is no answer.
  head=$(curl --silent --show-error --noproxy '*' --connect-timeout 2 --max-time 6 \
    --dump-header - --output "$answer" --write-out '\n%{http_code}' \
    --header 'Content-Type: application/json' --header "Idempotency-Key: $key" \
    --data-raw "{\"records\":[{\"value\":{\"text\":\"$text\"}}]}" "$url" 2> "$said")
  case $? in
    0) status=$(printf '%s\n' "$head" | tail -n 1) ;;
    6 | 7) status=000 stored=no ;;                 # no such host, refused: may work later
    18 | 28 | 52 | 55 | 56) status=000 stored=unknown ;;  # lost or too late
    *) cat "$said" >&2; exit 1 ;;
  esac

  if grep -q '"results":' "$answer"; then
    case "$status" in 200 | 202) cat "$answer"; echo; exit 0 ;; esac
  fi
  if [ "$status" = 000 ]; then
    echo "no answer (stored: $stored): $(cat "$said")" >&2
  else
    stored=$(field written) detail=$(field detail)
    echo "$status${stored:+ (stored: $stored)}: ${detail:-$(head -c 200 "$answer")}" >&2
  fi
  case "$status" in 000 | 408 | 429 | 503 | 504) ;; *) exit 1 ;; esac

  pause=$(printf '%s\n' "$head" | sed -n 's/^[Rr]etry-[Aa]fter: *\([0-9]\{1,\}\).*/\1/p')
  [ "$attempt" = 8 ] || sleep "${pause:-1}"
done
echo "try later with the key $key" >&2
exit 75
