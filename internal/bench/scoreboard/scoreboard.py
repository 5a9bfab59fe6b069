"""Writes the table of docs/scoreboard.md: what limiters do under one load, by their own definition and by the rolling one.

scoreboard.py BUILD [LIMITER ...] drives these limiters, or all, one after the other, and keeps what each did in BUILD.
make scoreboard installs what it needs there.
"""

import bisect
import json
import math
import os
import random
import re
import socket
import subprocess
import sys
import textwrap
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
UNITS, WINDOW, SPAN, CALLERS = 20, 2.0, 30, 4
SLACK = 0.005  # seconds by which a limiter's clock may be coarse


def load(start):
    """The calls: one and most of a window later a flood, floods around whole windows, an even rate, and bursts at random."""
    draw, calls = random.Random(20), []
    for at in range(0, SPAN - 6, 8):
        flood = [at + 0.95 * WINDOW + i * 0.004 for i in range(75)]
        calls += [(t, "pause") for t in [at, *flood, *(flood[-1] + i * 0.02 for i in range(1, 100))]]
    for at in range(2, SPAN, 4):
        calls += [(at - 0.15 + i * 0.006, "edge") for i in range(50)]
    calls += [(i * 0.08, "even") for i in range(int(SPAN / 0.08))]
    for key in ("burst-1", "burst-2", "burst-3", "burst-4"):
        at = 0.0
        while (at := at + draw.expovariate(0.8)) < SPAN:
            calls += [(at + i * 0.002, key) for i in range(draw.randint(1, 30))]
    return sorted((start + at, key) for at, key in calls)


class Rolling:
    """A promise of a window that slides, which sash verify judges."""


class Bucket:
    """A promise of a GCRA, a token bucket or a leaky bucket: at most UNITS + rate * t in any time t."""

    rate = UNITS / WINDOW

    def over(self, calls):
        admitted = [c for c in calls if c["admitted"]]
        begun, ended = sorted(c["sent"] for c in admitted), sorted(c["received"] for c in admitted)
        found, room, i = 0, -math.inf, 0
        for n, end in enumerate(ended, 1):
            while i < len(begun) and begun[i] <= end:  # the fullest interval begins here
                room = max(room, self.rate * begun[i] - bisect.bisect_left(begun, begun[i]))
                i += 1
            found += n - self.rate * (end + SLACK) + room > UNITS
        return found

    def needless(self, calls):
        charged = [c for c in calls if c["admitted"] is not False]
        begun, ended = sorted(c["sent"] for c in charged), sorted(c["received"] for c in charged)
        found = 0
        for c in calls:
            if c["admitted"] is not False:
                continue
            count = bisect.bisect_right(begun, c["received"])
            used = max((count - bisect.bisect_left(ended, k["sent"]) - self.rate * max(0, c["sent"] - k["received"] - SLACK)
                        for k in charged if k["sent"] <= c["received"]), default=0)
            found += used <= UNITS - 1
        return found


class Windows:
    """A promise of fixed windows, or of a counter over two: at most UNITS in a window, with a share of those in the last.

    A window starts with the first call behind the last one ("first"), behind it while calls come ("chain"), or by the clock.
    A chain is kept for whole seconds, rounded down, from the last call that was admitted: then the next call begins another.
    """

    def __init__(self, start, counter=False):
        self.start, self.counter = start, counter

    def windows(self, calls):
        """Returns pairs of a call and its window, None where it may be of either of two. A window has all calls that may be its."""
        found, now, doubts = [], None, []
        kept, until, surely = None, math.inf, math.inf  # the window of the last admission, and when a chain ends, at the earliest and latest
        for c in calls:
            sent, received = c["sent"], c["received"]
            if self.start == "clock":
                span = (sent // WINDOW * WINDOW,) * 2
                fresh = now is None or span[0] > now["low"]
                certain = span[0] + SLACK < sent and received < span[0] + WINDOW - SLACK
            elif now is None:
                span, fresh, certain = (sent, received), True, True
            else:
                fresh = sent >= now["high"] + WINDOW + SLACK
                certain = fresh or received < now["low"] + WINDOW - SLACK
                near = doubts and sent < doubts[-1]["received"] + WINDOW + SLACK
                span = (doubts[0]["sent"] if near else sent, received)
                if fresh and self.start == "chain" and sent < now["high"] + 2 * WINDOW + SLACK:
                    certain = received < now["low"] + 2 * WINDOW - SLACK
                    span = (now["low"] + WINDOW, now["high"] + WINDOW if certain else received)
            if self.start == "chain" and sent > surely + SLACK:
                span, fresh, certain, now = (sent, received), True, True, None
            elif self.start == "chain" and received > until - SLACK:  # it may have ended, or not
                span, fresh, certain, now = (kept["low"] + WINDOW, received), True, False, kept
            if fresh:
                last = now if now and self.start != "first" and span[0] < now["high"] + 2 * WINDOW else None
                now, doubts = {"low": span[0], "high": span[1], "last": last, "calls": doubts, "sure": []}, []
            now["calls"].append(c)
            if certain:
                now["sure"].append(c)
            else:
                doubts.append(c)
                if now["last"]:
                    now["last"]["calls"].append(c)
            if c["admitted"]:
                kept, until = now, sent + math.floor(now["low"] + 2 * WINDOW - received - SLACK)
                surely = received + math.floor(now["high"] + (2 if certain else 3) * WINDOW - sent + SLACK)
            found.append((c, now if certain else None))
        return found

    def count(self, calls, over):
        found = 0
        for c, w in self.windows(calls):
            if w is None or c["admitted"] is not over:
                continue
            last = w["last"] if w["last"] and self.counter else {"calls": [], "sure": []}
            if over:
                before = sum(k["admitted"] is True for k in last["sure"])
                share = max(0, 1 - (c["received"] - w["low"] + SLACK) / WINDOW) * before
                here = sum(k["admitted"] is True and k["received"] <= c["sent"] for k in w["sure"])
                found += here + max(0, share - 1) + 1 > UNITS  # libraries round the share down
            else:
                before = sum(k["admitted"] is not False for k in last["calls"])
                share = min(1, 1 - (c["sent"] - w["high"] - SLACK) / WINDOW) * before
                here = sum(k["admitted"] is not False and k["sent"] <= c["received"] for k in w["calls"])
                found += here + share + 1 <= UNITS
        return found

    def over(self, calls):
        return self.count(calls, True)

    def needless(self, calls):
        return self.count(calls, False)


def free():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def await_port(port):
    for _ in range(100):
        try:
            return socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"nothing listens on port {port}")


class Server:
    """A process that listens on a port, until the end of a with statement."""

    def __init__(self, command, port):
        self.command, self.port = command, port

    def __enter__(self):
        self.process = subprocess.Popen(self.command, cwd=BUILD, stdout=subprocess.DEVNULL)
        await_port(self.port)
        return f"127.0.0.1:{self.port}"

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def redis():
    port = free()
    return Server(["redis-server", "--port", str(port), "--save", "", "--bind", "127.0.0.1"], port)


def nginx():
    port = free()
    with open(f"{BUILD}/nginx.conf", "w") as f:
        f.write(f"""daemon off; worker_processes 2; pid {BUILD}/nginx.pid; error_log {BUILD}/nginx.log crit;
events {{}}
http {{
  access_log off; client_body_temp_path {BUILD}/body; proxy_temp_path {BUILD}/proxy; fastcgi_temp_path {BUILD}/fastcgi;
  uwsgi_temp_path {BUILD}/uwsgi; scgi_temp_path {BUILD}/scgi;
  limit_req_zone $arg_key zone=keys:1m rate=10r/s;
  server {{ listen 127.0.0.1:{port}; limit_req zone=keys burst=19 nodelay; limit_req_status 429; location / {{ empty_gif; }} }}
}}
""")
    return Server(["nginx", "-e", f"{BUILD}/nginx.log", "-c", f"{BUILD}/nginx.conf"], port)


def sash(address, port, flag):
    with open(f"{BUILD}/limits.yaml", "w") as f:
        f.write('domain: board\ndescriptors: [{key: user, limits: ["20/2s"]}]\n')
    with open(f"{BUILD}/access.yaml", "w") as f:
        f.write('anonymous: {allow: {"*": [decide], (request): [decide, override]}}\n')
    ports = {"--addr": 0, "--resp-addr": 0, "--grpc-addr": 0, "--admin-addr": 0, f"--{flag}": port}
    return Server(["./sash", "serve", "--config", "limits.yaml", "--access", "access.yaml", "--redis", f"redis://{address}", "--budget", "1s", "--log-level", "error",
                   *(f"{flag}=127.0.0.1:{port}" for flag, port in ports.items())], port)


def start(callers, driver, address, calls):
    """Drives a limiter from so many processes, and returns its history."""
    programs = {"go": ["./drive", "-drive"], "python": ["python/bin/python", f"{HERE}/drive.py"],
                "node": ["node", f"{HERE}/drive.mjs"], "php": ["php", f"{HERE}/drive.php"]}
    command = [*programs[driver[0]], driver[1], address, *driver[2:]]
    running = []
    for i in range(callers):
        with open(f"{BUILD}/load-{i}", "w") as f:
            f.writelines(f"{at:.6f} {key}\n" for at, key in calls[i::callers])
        with open(f"{BUILD}/load-{i}") as f, open(f"{BUILD}/history-{i}", "w") as out:
            running.append(subprocess.Popen(command, cwd=BUILD, stdin=f, stdout=out))
    if any([p.wait() for p in running]):
        raise SystemExit(f"{' '.join(command)} failed")
    return [line for i in range(callers) for line in open(f"{BUILD}/history-{i}")]


BUCKET = Bucket()
# By name: language and where the state is, the driver, what it promises, and who judges that.
LIMITERS = {
    "sash": ("Go, Redis", ("go", "Sash, go-redis"), "sliding window", Rolling()),
    "sash-http": ("HTTP, Redis", ("python", "http", '{"domain":"board","entries":[{"key":"user","value":"{key}"}]}'), "sliding window", Rolling()),
    "sash-resp": ("RESP, Redis", ("python", "resp", "CL.THROTTLE", "{key}", "19", "20", "2"), "sliding window", Rolling()),
    "limits": ("Python, Redis", ("python", "limits"), "sliding window", Rolling()),
    "redis_rate": ("Go, Redis", ("go", "redis_rate"), "GCRA", BUCKET),
    "throttled": ("Go, Redis", ("go", "throttled"), "GCRA", BUCKET),
    "x-time-rate": ("Go, memory", ("go", "x/time/rate"), "token bucket", BUCKET),
    "nginx": ("C, memory", ("python", "http"), "leaky bucket", BUCKET),
    "ulule": ("Go, Redis", ("go", "ulule/limiter"), "fixed window", Windows("first")),
    "rate-limiter-flexible": ("Node, Redis", ("node", "rate-limiter-flexible"), "fixed window", Windows("first")),
    "express-rate-limit": ("Node, memory", ("node", "express-rate-limit"), "fixed window", Windows("first")),
    "symfony-fixed": ("PHP, Redis", ("php", "symfony-fixed"), "fixed window", Windows("first")),
    "symfony-sliding": ("PHP, Redis", ("php", "symfony-sliding"), "window counter", Windows("chain", True)),
    "slidingwindow": ("Go, memory", ("go", "slidingwindow"), "window counter", Windows("clock", True)),
}


def drive(name):
    """Returns the history of a limiter under the load, as lines."""
    where, driver, _, _ = LIMITERS[name]
    calls = load(math.ceil((time.time() + 2) / WINDOW) * WINDOW)
    if name == "nginx":
        with nginx() as address:
            return start(CALLERS, driver, f"http://{address}/?key={{key}}", calls)
    if "memory" in where:
        return start(1, driver, "", calls)
    with redis() as address:
        if not name.startswith("sash-"):
            return start(CALLERS, driver, address, calls)
        port = free()
        with sash(address, port, "addr" if name == "sash-http" else "resp-addr") as served:
            return start(CALLERS, driver, f"http://{served}/v1/allow" if name == "sash-http" else served, calls)


def row(name):
    """Drives a limiter, and returns its line of the table."""
    where, _, promise, own = LIMITERS[name]
    lines = drive(name)
    file = f"{BUILD}/{name}.jsonl"
    with open(file, "w") as f:
        f.writelines(lines)
    verdict = json.loads(subprocess.run([f"{BUILD}/sash", "verify", "--history", file, "--limit", f"{UNITS}/{WINDOW:g}s", "--json"],
                                        stdout=subprocess.PIPE, check=False).stdout)
    most = max((f.get("units", 0) for f in verdict["faults"]), default=0) or f"≤{UNITS}"
    over, needless = (sum(f[of] for f in verdict["faults"]) for of in ("over_admitted", "false_refusals"))
    kept = over, needless
    if not isinstance(own, Rolling):
        keys = {}
        for call in map(json.loads, lines):
            call.setdefault("admitted", None)
            keys.setdefault(call["key"], []).append(call)
        ordered = [sorted(calls, key=lambda c: c["sent"]) for calls in keys.values()]
        kept = sum(map(own.over, ordered)), sum(map(own.needless, ordered))
    print(f"{name}: {verdict['admitted']} admitted, {verdict['refused']} refused, {verdict['unanswered']} without an answer; "
          f"over and needless by its promise {kept}, by the rolling one {(over, needless)}", file=sys.stderr)
    if verdict["unanswered"]:
        where += f"; {verdict['unanswered']} calls without an answer"
    return f"| {name} ({where}) | {promise} | {kept[0]} | {kept[1]} | {most} | {needless} | `make scoreboard ONLY={name}` |\n"


def versions():
    def first(*command):
        return subprocess.run(command, cwd=BUILD, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout

    modules = dict(line.split()[1:3] for line in first("go", "version", "-m", "drive").splitlines() if line.startswith("\tdep"))
    go = ["github.com/go-redis/redis_rate/v10", "github.com/throttled/throttled/v2", "golang.org/x/time", "github.com/ulule/limiter/v3", "github.com/RussellLuo/slidingwindow"]
    return [
        time.strftime("%-d %B %Y"), "Redis " + re.search(r"v=(\S+)", first("redis-server", "--version"))[1], "nginx " + first("nginx", "-v").split("/")[1].strip(),
        *(f"{m.removeprefix('github.com/')} {modules[m]}" for m in go),
        "limits " + first("python/bin/python", "-c", "import limits; print(limits.__version__)").strip(),
        *(f"{m} {json.load(open(f'{BUILD}/node_modules/{m}/package.json'))['version']}" for m in ("rate-limiter-flexible", "express-rate-limit")),
        "symfony/rate-limiter " + first("dpkg-query", "-W", "-f", "${Version}", "php-symfony-rate-limiter").split("+")[0],
    ]


def main():
    for name in sys.argv[2:]:
        print(row(name), end="")
    if len(sys.argv) > 2:
        return
    head = ("| limiter | promise | over it | needless by it | most in any 2 s | refused with room there | again |\n"
            "| --- | --- | ---: | ---: | ---: | ---: | --- |\n")
    table = head + "".join(map(row, LIMITERS))
    page = f"{HERE}/../../../docs/scoreboard.md"
    before, rest = open(page).read().split("<!-- table -->\n")
    with open(page, "w") as f:
        f.write(f"{before}<!-- table -->\n\n{textwrap.fill(', '.join(versions()), 140, break_on_hyphens=False)}.\n\n{table}\n<!-- end -->{rest.split('<!-- end -->')[1]}")


if __name__ == "__main__":
    main()
