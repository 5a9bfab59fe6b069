"""limits, as its manual has it fast: the moving window, over redis-py with hiredis. See internal/bench/languages.go."""

import importlib.metadata
import json
import platform
import random
import sys
import threading
import time

from limits import RateLimitItemPerSecond
from limits.storage import storage_from_string
from limits.strategies import MovingWindowRateLimiter

limiter = MovingWindowRateLimiter(storage_from_string("redis://" + sys.argv[1]))


def load(request):
    """Decides from threads for a time."""
    item = RateLimitItemPerSecond(request["units"], request["window_ms"] // 1000)
    names = [f"bench:{i}" for i in range(request["keys"])]
    times, admitted, lock = [], 0, threading.Lock()
    start = threading.Barrier(request["callers"] + 1)  # starting threads takes time of its own

    def caller():
        nonlocal admitted
        mine, yes = [], 0
        start.wait()
        now = time.perf_counter_ns()
        end = now + request["for_ms"] * 1_000_000
        while now < end:
            yes += limiter.hit(item, random.choice(names))
            after = time.perf_counter_ns()
            mine.append(after - now)
            now = after
        with lock:
            times.extend(mine)
            admitted += yes

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
        "decisions": len(times), "admitted": admitted, "ms": took / 1e6,
        "p50_us": times[len(times) // 2] / 1000, "p99_us": times[len(times) * 99 // 100] / 1000,
    }


print(json.dumps({"version": f"limits {importlib.metadata.version('limits')}, Python {platform.python_version()}"}), flush=True)
for line in sys.stdin:
    print(json.dumps(load(json.loads(line))), flush=True)
