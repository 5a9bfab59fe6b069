#!/bin/sh
# Calls an API five times, at most twice in any second. CL.THROTTLE key max_burst count period replies with five lines:
# the first is 1 if there is no room, and the fourth is when there will be.
for call in 1 2 3 4 5; do
	while set -- $(redis-cli -p "${SASH_PORT:-6380}" --raw CL.THROTTLE api:mail 1 2 1) && [ "$1" != 0 ]; do
		case $1 in 1) sleep "$4" ;; *) echo "no decision: $*" >&2; exit 1 ;; esac
	done
	echo "call $call"
done
