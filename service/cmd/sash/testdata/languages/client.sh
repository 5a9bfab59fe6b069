#!/bin/sh
# redis-cli. Arguments: the name of a subject, the protocol (2 or 3).
cli() { redis-cli "-$2" -p "$SASH_PORT" --no-auth-warning -a "$1" --raw; }
echo throttle $(echo "CL.THROTTLE $1 2 3 60" | cli "$SASH_TOKEN" "$2")
allowed=0
for call in 1 2 3 4 5 6 7; do
	set -- "$1" "$2" $(echo "SASH.ALLOW web ENTRY user $1" | cli "$SASH_TOKEN" "$2")
	allowed=$((allowed + $4))
done
echo allowed $allowed
set -- "$1" "$2" $(cli "$SASH_TOKEN" "$2" <<END
MULTI
CL.THROTTLE "$1 once" 0 1 60
EVAL "return redis.call('CL.THROTTLE', KEYS[1], ARGV[1], ARGV[2], ARGV[3])" 1 "$1 once" 0 1 60
EXEC
EVAL "return redis.call('CL.THROTTLE', KEYS[1], ARGV[1], ARGV[2], ARGV[3])" 1 "$1 once" 0 1 60
END
)
echo multi $6 ${11} ${16}
echo error $(echo "SASH.ALLOW web ENTRY" | cli "$SASH_TOKEN" "$2")
echo denied $(echo "AUTH wrong" | cli "$SASH_TOKEN" "$2")
