#!/usr/bin/python3
"""Make the samples of access logs again: the same traffic through real servers, loggers and journald.

Run it by `make log-samples`, as root because journald needs that. Requests go out in the middle of a second, so that every
log has the same seconds. traffic.tsv is what was sent: the second since the Unix epoch, the address that the client sent
from, the address that X-Forwarded-For names, the method and the target. brute.py computes the answers from it alone.
"""
import http.client, json, os, pathlib, random, re, signal, socket, subprocess, sys, tempfile, threading, time

HERE = pathlib.Path(__file__).resolve().parent
SECONDS, EACH = 12, 3
AGENT = 'sample/1.0 (a "quoted" word)'

NGINX = r"""
daemon off; worker_processes 1; pid %(dir)s/nginx.pid; error_log %(dir)s/nginx.err;
events {}
http {
  log_format main '$remote_addr - $remote_user [$time_local] "$request" '
                  '$status $body_bytes_sent "$http_referer" '
                  '"$http_user_agent" "$http_x_forwarded_for"';
  log_format forwarded '$http_x_forwarded_for - $remote_user [$time_local] "$request" $status $body_bytes_sent';
  log_format own '$msec|$remote_addr:$remote_port|$request_method $scheme://$host$request_uri|$status|$request_time|$http_user_agent';
  log_format json escape=json '{"time":"$time_iso8601","msec":"$msec","remote_addr":"$remote_addr","request":"$request",'
                  '"status":$status,"http_user_agent":"$http_user_agent","http_x_forwarded_for":"$http_x_forwarded_for"}';
  server {
    listen 127.0.0.1:%(port)d;
    access_log %(out)s/nginx-combined.log combined;
    access_log %(out)s/nginx-main.log main;
    access_log %(out)s/nginx-forwarded-first.log forwarded;
    access_log %(out)s/nginx-own.log own;
    access_log %(out)s/nginx-json.log json;
    access_log syslog:server=127.0.0.1:%(syslog)d combined;
    return 204;
  }
}
"""

APACHE = r"""
ServerRoot %(dir)s
ServerName localhost
PidFile %(dir)s/apache.pid
ErrorLog %(dir)s/apache.err
Listen 127.0.0.1:%(port)d
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule rewrite_module /usr/lib/apache2/modules/mod_rewrite.so
LogFormat "%%h %%l %%u %%t \"%%r\" %%>s %%O \"%%{Referer}i\" \"%%{User-Agent}i\"" combined
LogFormat "%%v:%%p %%h %%l %%u %%t \"%%r\" %%>s %%O \"%%{Referer}i\" \"%%{User-Agent}i\"" vhost_combined
LogFormat "%%{%%Y-%%m-%%d %%T}t.%%{usec_frac}t %%a %%{X-Forwarded-For}i %%m %%U%%q %%>s %%D \"%%{User-Agent}i\"" own
CustomLog %(out)s/apache-combined.log combined
CustomLog %(out)s/apache-vhost-combined.log vhost_combined
CustomLog %(out)s/apache-own.log own
RewriteEngine on
RewriteRule ^ - [R=204,L]
"""

HAPROXY = r"""
global
  log 127.0.0.1:%(syslog)d format rfc5424 local0
  log 127.0.0.1:%(raw)d format raw local0
defaults
  mode http
  log global
  option httplog
  timeout client 5s
  timeout connect 5s
  timeout server 5s
frontend http-in
  bind 127.0.0.1:%(port)d
  http-request capture req.hdr(X-Forwarded-For) len 40
  http-request return status 204
"""

CADDY = r"""
{
  admin off
  auto_https off
  http_port %(port)d
}
http://127.0.0.1:%(port)d {
  bind 127.0.0.1
  log {
    output stderr
    format json
  }
  respond 204
}
"""


def free_port(kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_INET, kind) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Datagrams(threading.Thread):
    """Collects what is sent to a syslog server."""

    def __init__(self):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port, self.lines = self.socket.getsockname()[1], []

    def run(self):
        while True:
            self.lines.append(self.socket.recv(65536).decode().rstrip("\n"))


def traffic(start):
    """What is sent: few clients with most requests."""
    pick = random.Random(7)
    for second in range(SECONDS):
        for _ in range(EACH):
            client = min(int(pick.expovariate(0.6)), 7)
            target = pick.choice(["/", "/search?q=a%20b", "/items/7", "/items/8?page=2"])
            method = "POST" if target == "/items/7" and pick.random() < 0.5 else "GET"
            yield start + second, f"127.0.0.{10 + client}", f"203.0.113.{10 + client}", method, target


def send(port, requests):
    for second, address, forwarded, method, target in requests:
        time.sleep(max(0, second + 0.4 - time.time()))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5, source_address=(address, 0))
        connection.request(method, target, headers={"User-Agent": AGENT, "X-Forwarded-For": forwarded})
        connection.getresponse().read()
        connection.close()
        if int(time.time()) != second:
            raise SystemExit("this machine is too busy: a request took more than half a second")


def wait_for(port):
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"nothing listens on port {port}")


def write(name, lines):
    (HERE / name).write_text("".join(line + "\n" for line in lines))


def with_times(seconds, lines):
    return zip((time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(s)) + f".{i:03d}456789Z" for i, s in enumerate(seconds)), lines)


def containers(seconds, lines):
    """What containerd, Docker and compose write around a line, by their documentation."""
    startup = "/docker-entrypoint.sh: Configuration complete; ready for start up"
    cri = [f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds[0]))}.000000001Z stdout F {startup}"]
    docker = [json.dumps({"log": startup + "\n", "stream": "stdout", "time": cri[0].split()[0]}, separators=(",", ":"))]
    for at, line in with_times(seconds, lines):
        cri.append(f"{at} stdout F {line}")
        docker.append(json.dumps({"log": line + "\n", "stream": "stdout", "time": at}, separators=(",", ":")))
    write("containerd.log", cri)
    write("docker-json.log", docker)
    write("compose.log", [f"web-1  | {startup}", "db-1   | database system is ready to accept connections"] + [f"web-1  | {line}" for line in lines])


def loggers(lines):
    """util-linux's logger, in both forms, and the same without the priority as daemons write it into files."""
    for form in ("rfc3164", "rfc5424"):
        server = Datagrams()
        server.start()
        command = ["logger", "--server", "127.0.0.1", "--port", str(server.port), "--udp", f"--{form}", "--tag", "nginx"]
        subprocess.run(command, input="\n".join(lines) + "\n", text=True, check=True)
        time.sleep(0.5)
        out = server.lines
        write(f"syslog-{form}.log", out)
        if form == "rfc3164":
            write("syslog-file.log", [re.sub(r"^<\d+>", "", line) for line in out])


def journal(lines):
    """journald by systemd-cat, and what journalctl shows of it."""
    journald = None
    if not os.path.exists("/run/systemd/journal/stdout") or subprocess.run(["systemd-cat", "true"], capture_output=True).returncode:
        journald = subprocess.Popen(["/lib/systemd/systemd-journald"], stderr=subprocess.DEVNULL)
        time.sleep(2)
    tag = f"sample-{os.getpid()}"
    try:
        subprocess.run(["systemd-cat", "-t", tag], input="\n".join(lines) + "\n", text=True, check=True)
        time.sleep(1)
        subprocess.run(["journalctl", "--sync"], capture_output=True, timeout=10)
        for form in ("json", "short", "short-iso"):
            out = subprocess.run(["journalctl", "-t", tag, "-o", form, "--no-pager", "--output-fields=MESSAGE"], capture_output=True, check=True).stdout
            (HERE / f"journald-{form}.log").write_bytes(out.replace(tag.encode(), b"nginx"))
    finally:
        if journald:
            journald.send_signal(signal.SIGTERM)
            journald.wait()


def main():
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        out = pathlib.Path(directory) / "out"
        out.mkdir()
        os.chmod(out, 0o777)
        syslog = {name: Datagrams() for name in ("nginx", "haproxy", "haproxy-raw")}
        for s in syslog.values():
            s.start()
        ports = {name: free_port() for name in ("nginx", "apache", "haproxy", "caddy")}
        for name, text in (("nginx", NGINX), ("apache", APACHE), ("haproxy", HAPROXY), ("caddy", CADDY)):
            values = {"dir": directory, "out": out, "port": ports[name], "raw": syslog["haproxy-raw"].port}
            if name in syslog:
                values["syslog"] = syslog[name].port
            (pathlib.Path(directory) / name).write_text(text % values)
        path = lambda name: str(pathlib.Path(directory) / name)
        env = os.environ | {"TZ": "UTC", "XDG_DATA_HOME": directory, "XDG_CONFIG_HOME": directory, "PATH": os.environ["PATH"] + ":/usr/sbin"}
        caddy_log = open(out / "caddy.log", "wb")
        servers = [
            subprocess.Popen(["nginx", "-c", path("nginx")], env=env, stderr=subprocess.DEVNULL),
            subprocess.Popen(["apache2", "-DFOREGROUND", "-f", path("apache")], env=env),
            subprocess.Popen(["haproxy", "-db", "-f", path("haproxy")], env=env, stderr=subprocess.DEVNULL),
            subprocess.Popen(["caddy", "run", "--adapter", "caddyfile", "--config", path("caddy")], env=env, stderr=caddy_log, stdout=caddy_log),
        ]
        try:
            for port in ports.values():
                wait_for(port)
            requests = list(traffic(int(time.time()) + 2))
            failed = []
            def run(port):
                try:
                    send(port, requests)
                except BaseException as error:
                    failed.append(error)
            senders = [threading.Thread(target=run, args=(port,)) for port in ports.values()]
            for t in senders:
                t.start()
            for t in senders:
                t.join()
            if failed:
                raise failed[0]
            time.sleep(1)
        finally:
            for server in servers:
                server.terminate()
            for server in servers:
                server.wait()
        write("traffic.tsv", ["\t".join(map(str, r)) for r in requests])
        for log in sorted(out.iterdir()):
            (HERE / log.name).write_text(log.read_text().replace(directory, "/etc/caddy"))
        # The check that a server listens is no request, but HAProxy logs it.
        write("nginx-syslog.log", syslog["nginx"].lines)
        write("haproxy-rfc5424.log", [line for line in syslog["haproxy"].lines if "http-in" in line and "BADREQ" not in line])
        write("haproxy.log", [line for line in syslog["haproxy-raw"].lines if "http-in" in line and "BADREQ" not in line])
        combined = (HERE / "nginx-combined.log").read_text().splitlines()
        seconds = [r[0] for r in requests]
        containers(seconds, combined)
        loggers(combined)
        journal(combined)
    subprocess.run([sys.executable, HERE / "brute.py"], check=True)
    versions = {"nginx": ["nginx", "-v"], "apache": ["apache2", "-v"], "haproxy": ["haproxy", "-v"], "caddy": ["caddy", "version"], "logger": ["logger", "--version"], "systemd": ["journalctl", "--version"]}
    for name, command in versions.items():
        done = subprocess.run(command, capture_output=True, text=True, env=env)
        print(f"{name}: {(done.stdout + done.stderr).splitlines()[0]}")


main()
