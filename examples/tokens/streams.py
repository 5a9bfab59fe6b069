"""A model that pretends, clients that stream from it through Envoy, and the budget of their user in the terminal."""
import http.client
import http.server
import json
import random
import sys
import threading
import time

LIMIT, SECONDS = 2000, 30
reserved = {}  # by stream
lock = threading.Lock()


class Model(http.server.BaseHTTPRequestHandler):
    """Streams about two thirds of the tokens that a request allows, and then what it used, as OpenAI does."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        tokens = random.randint(asked["max_tokens"] // 3, asked["max_tokens"])
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for _ in range(10):
            self.say({"choices": [{"delta": {"content": "word " * (tokens // 10)}}]})
            time.sleep(0.3)
        self.say({"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": tokens}})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def say(self, event):
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")

    def log_message(self, *_):
        pass


def tell(text):
    with lock:
        print("\r\033[K" + text)


def stream(number):
    body = json.dumps({"model": "m", "stream": True, "max_tokens": random.randrange(200, 600, 50), "messages": "Hello"})
    most = len(body) + json.loads(body)["max_tokens"]
    connection = http.client.HTTPConnection("127.0.0.1", 8000, timeout=30)
    connection.request("POST", "/v1/chat/completions", body, {"x-user": "ann"})
    answer = connection.getresponse()
    if answer.status != 200:
        tell(f"stream {number:2}: {answer.status}, can use {most}: {json.loads(answer.read())['error']['message']}")
        return
    tell(f"stream {number:2}: begins, and reserves {most}")
    reserved[number] = most
    for line in answer:
        if b'"usage"' in line:
            used = sum(json.loads(line[6:])["usage"].values())
            tell(f"stream {number:2}: has used {used}, and gives {most - used} back")
    del reserved[number]


def remaining():
    question = json.dumps({"domain": "ai", "entries": [{"key": "x-user", "value": "ann"}]})
    connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=5)
    connection.request("POST", "/v1/peek", question, {"content-type": "application/json"})
    return json.loads(connection.getresponse().read())["remaining"]


def wait_for(port):
    while True:
        try:
            return http.client.HTTPConnection("127.0.0.1", port, timeout=1).connect()
        except OSError:
            time.sleep(0.1)


threading.Thread(target=http.server.ThreadingHTTPServer(("127.0.0.1", 9000), Model).serve_forever, daemon=True).start()
for port in 8080, 8000:
    wait_for(port)
print(f"ann has {LIMIT} tokens in any 20 seconds: # is used, = is reserved")
for tick in range(SECONDS * 4):
    if tick % 5 == 0:
        threading.Thread(target=stream, args=(tick // 5 + 1,), daemon=True).start()
    taken = LIMIT - remaining()
    held = min(taken, sum(list(reserved.values())))
    bar = "#" * ((taken - held) * 50 // LIMIT) + "=" * (held * 50 // LIMIT)
    with lock:
        print(f"\r\033[K[{bar:.<50}] {taken:4} of {LIMIT}", end="", flush=True)
    time.sleep(0.25)
print()
sys.exit(0)
