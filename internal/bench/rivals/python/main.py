"""The Python program of internal/bench/rivals, whose doc.go has the protocol: limits, and Sash over RESP."""

import importlib.metadata
import json
import platform
import random
import sys
import threading
import time

import redis
from limits import RateLimitItemPerSecond
from limits.storage import storage_from_string
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter, SlidingWindowCounterRateLimiter

REDIS, SASH = sys.argv[1:3]

storage = storage_from_string("redis://" + REDIS)
host, port = SASH.rsplit(":", 1)
sash = redis.Redis(host=host, port=int(port), protocol=3)


def by_limits(strategy):
    limiter = strategy(storage)

    def decider(units, window_ms):
        if window_ms % 1000:
            raise ValueError("limits counts in whole seconds")
        item = RateLimitItemPerSecond(units, window_ms // 1000)
        return lambda key: limiter.hit(item, key)

    return decider


def by_sash(units, window_ms):
    limit = f"{units}/{window_ms}ms"
    return lambda key: sash.execute_command("SASH.ALLOW", key, "LIMIT", limit)[b"allowed"] == 1


CONTENDERS = {
    "limits, moving window": ("limits", by_limits(MovingWindowRateLimiter)),
    "limits, sliding window counter": ("limits", by_limits(SlidingWindowCounterRateLimiter)),
    "limits, fixed window": ("limits", by_limits(FixedWindowRateLimiter)),
    "Sash over RESP, redis-py": ("redis", by_sash),
}


def load(decide, request):
    """Decides from threads for a time."""
    names = [f"{request['prefix']}:{i}" for i in range(request["keys"])]
    lock = threading.Lock()
    times, admitted, errors = [], 0, 0
    start = threading.Barrier(request["callers"] + 1)  # starting threads takes time of its own

    def caller():
        nonlocal admitted, errors
        mine, yes, failed = [], 0, 0
        start.wait()
        now = time.perf_counter_ns()
        end = now + request["for_ms"] * 1_000_000
        while now < end:
            try:
                yes += decide(random.choice(names))
            except redis.RedisError:
                failed += 1
            after = time.perf_counter_ns()
            mine.append(after - now)
            now = after
        with lock:
            times.extend(mine)
            admitted, errors = admitted + yes, errors + failed

    threads = [threading.Thread(target=caller) for _ in range(request["callers"])]
    for thread in threads:
        thread.start()
    start.wait()
    began = time.perf_counter_ns()
    for thread in threads:
        thread.join()
    took = time.perf_counter_ns() - began
    times.sort()
    return {
        "decisions": len(times) - errors, "admitted": admitted, "errors": errors, "ms": took / 1e6,
        "p50_us": times[len(times) // 2] / 1000, "p99_us": times[len(times) * 99 // 100] / 1000,
    }


def answer(request):
    _, decider = CONTENDERS[request["contender"]]
    decide = decider(request["units"], request["window_ms"])
    if request["op"] == "ask":
        return {"allowed": bool(decide(request["key"]))}
    if request["op"] == "load":
        return load(decide, request)
    raise ValueError(f"there is no operation {request['op']!r}")


def say(message):
    print(json.dumps(message), flush=True)


say({
    "runtime": "Python " + platform.python_version(),
    "contenders": [{"name": n, "version": importlib.metadata.version(p)} for n, (p, _) in CONTENDERS.items()],
})
for line in sys.stdin:
    try:
        say(answer(json.loads(line)))
    except Exception as e:  # whatever it is, the harness drops the contender
        say({"error": f"{type(e).__name__}: {e}"})
