#!/bin/sh
# One limit over two regions, on this machine: a home, a Redis and a sash serve for each region. It calls from both regions
# at once and counts what was admitted. SASH is the program, and PORT the first of five ports.
set -eu
here=$(dirname "$0")
sash=${SASH:-bin/sash}
port=${PORT:-7400}
dir=$(mktemp -d)
pids=
trap 'for pid in $pids; do kill "$pid" 2>/dev/null || true; done; wait; rm -rf "$dir"' EXIT INT TERM

redis() { # name, port
	redis-server --bind 127.0.0.1 --port "$2" --save '' --appendonly no --dir "$dir" >"$dir/$1.log" &
	pids="$pids $!"
	i=0
	until redis-cli -p "$2" ping >"$dir/ping" 2>&1; do
		i=$((i + 1)); [ "$i" -lt 100 ] || { cat "$dir/$1.log"; exit 1; }
		sleep 0.1
	done
}

region() { # name, port of its Redis, port of its service
	redis "$1" "$2"
	"$sash" serve --config "$here/policy.yaml" --home "127.0.0.1:$port" --redis "127.0.0.1:$2" \
		--addr "127.0.0.1:$3" --grpc-addr '' --admin-addr '' --drain-delay 0 >"$dir/$1.serve.log" 2>&1 &
	pids="$pids $!"
	i=0
	until curl -sf -o "$dir/health" "http://127.0.0.1:$3/healthz"; do
		i=$((i + 1)); [ "$i" -lt 100 ] || { cat "$dir/$1.serve.log"; exit 1; }
		sleep 0.1
	done
}

calls() { # name, port: 150 calls, one after the other
	for _ in $(seq 150); do
		curl -s "http://127.0.0.1:$2/v1/allow" -H 'Content-Type: application/json' \
			-d '{"domain":"planet","entries":[{"key":"user","value":"42"}]}'
		echo
	done >"$dir/$1.answers"
}

redis home "$port"
region east "$((port + 1))" "$((port + 2))"
region west "$((port + 3))" "$((port + 4))"
calls east "$((port + 2))" & east=$!
calls west "$((port + 4))" & west=$!
wait "$east" "$west"
for name in east west; do
	admitted=$(grep -c '"allowed":true' "$dir/$name.answers" || true)
	leased=$(grep '"allowed":true' "$dir/$name.answers" | grep -c '"source":"lease"' || true)
	echo "$name: $admitted of 150 calls admitted, $leased of them without a trip to the home"
done
echo "together: $(cat "$dir"/*.answers | grep -c '"allowed":true') of 200 in 10m"
