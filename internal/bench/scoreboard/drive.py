"""Makes a history of a limiter for sash verify, from a load on standard input.

drive.py LIMITER ADDRESS [WORD ...] <load >history

A line of the load is when to call, in seconds since the epoch, and a key. To drive another limiter, write a function that
returns whether a key is admitted.
"""

import http.client
import json
import sys
import time
from urllib.parse import urlsplit

WORDS = sys.argv[3:]  # have {key} in them


def limits(address):
    from limits import RateLimitItemPerSecond, storage, strategies

    limiter = strategies.MovingWindowRateLimiter(storage.storage_from_string(f"redis://{address}"))
    item = RateLimitItemPerSecond(20, 2)  # 20 in 2 s
    return lambda key: limiter.hit(item, key)


def over_http(url):
    """GET, or POST with the words as the body; status 200 is an admission, and 429 a refusal."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=5)

    def allow(key):
        body = " ".join(WORDS).replace("{key}", key)
        path = f"{parts.path}?{parts.query}".replace("{key}", key)
        connection.request("POST" if body else "GET", path, body or None, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        if response.status not in (200, 429):
            raise RuntimeError(f"status {response.status}")
        return response.status == 200

    return allow


def over_resp(address):
    """The words are a command whose reply begins with 0 if the call is admitted, as that of CL.THROTTLE does."""
    import redis

    client = redis.Redis.from_url(f"redis://{address}")
    return lambda key: client.execute_command(*(word.replace("{key}", key) for word in WORDS))[0] == 0


allow = {"limits": limits, "http": over_http, "resp": over_resp}[sys.argv[1]](sys.argv[2])
allow("warm-up")
for line in sys.stdin:
    at, key = line.split()
    time.sleep(max(0, float(at) - time.time()))
    call = {"key": key, "sent": time.time()}
    try:
        call["admitted"] = bool(allow(key))
    except Exception as e:  # no answer
        print(e, file=sys.stderr)
    call["received"] = time.time()
    print(json.dumps(call))
