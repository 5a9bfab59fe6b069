# A crawler that reads a host at most twice in any second. Each worker books its turn, in order, and sleeps until then.
import os
import threading
import time

import redis

sash = redis.Redis(port=int(os.environ.get("SASH_PORT", 6380)), decode_responses=True)


def read(page):
    reply = sash.execute_command("SASH.BOOK", "web", "ENTRY", "host", "example.com", "WITHIN", 30)
    answer = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2]))  # redis-py 8 returns a dict
    if not answer["allowed"]:
        return print(page, "would wait for more than 30 seconds")
    time.sleep(float(answer["start_after"]))
    print(f"{page} is read\n", end="")  # the request


workers = [threading.Thread(target=read, args=(f"page {n}",)) for n in range(1, 6)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
