"""Makes a history of a limiter for sash verify: drive.py LIMITER REDIS <load >history. See internal/bench/drive.go."""

import json
import sys
import time

from limits import RateLimitItemPerSecond, storage, strategies

STRATEGIES = {
    "limits-moving": strategies.MovingWindowRateLimiter,
    "limits-fixed": strategies.FixedWindowRateLimiter,
}
limiter = STRATEGIES[sys.argv[1]](storage.storage_from_string("redis://" + sys.argv[2]))
item = RateLimitItemPerSecond(20, 2)  # 20 in 2 s


def allow(key):
    return limiter.hit(item, key)


allow("warm-up")
for line in sys.stdin:
    at, key = line.split()
    time.sleep(max(0, float(at) - time.time()))
    call = {"key": key, "sent": time.time()}
    try:
        call["admitted"] = bool(allow(key))
    except Exception as e:  # no answer
        call["error"] = str(e)
    call["received"] = time.time()
    print(json.dumps(call))
