"""What the measurements of servers share: starting one, and clients that note when tokens come."""
import http.client
import json
import os
import re
import socket
import subprocess
import threading
import time

from cpu_table import Failure

START_SECONDS = 600


class Server:
    """A Lockstep or llama-server of its own; stopped when it is left."""

    def __init__(self, name, command, port=None, prefix=()):
        self.name, self.port = name, port
        command = [*prefix, *map(str, command)]
        try:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                            stderr=subprocess.PIPE, text=True, errors="replace")
        except OSError as error:
            raise Failure(f"{command[0]}: cannot be run: {error.strerror}; check the path") from None
        self.last = ""
        self.ready = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        self._wait()

    def _read(self):
        for line in self.process.stderr:
            self.last = line.strip() or self.last
            if found := re.search(r"listening on http://[^ ]*:(\d+)$", line):
                self.port = self.port or int(found[1])
                self.ready.set()

    def _wait(self):
        begin = time.monotonic()
        while time.monotonic() - begin < START_SECONDS:
            if self.process.poll() is not None:
                raise Failure(f"{self.name}: exit {self.process.returncode}: {self.last or 'it said nothing'}")
            if self.port and self._healthy():
                return
            time.sleep(0.1)
        self.process.kill()
        raise Failure(f"{self.name}: not ready after {START_SECONDS} s: {self.last}")

    def _healthy(self):
        try:
            return self.get("/health")[0] == 200
        except OSError:
            return False

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def metric(self, name):
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        raise Failure(f"{self.name}: no metric {name}")

    def resident(self):
        """Bytes of memory."""
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()


def request_bytes(path, body):
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def completion(port, body, stop=None, timeout=3600):
    """Streams /completion. Seconds (of time.perf_counter) when it was sent, when each event with tokens came, the
    tokens of each, and the last object. `stop`, an event: leaves when it is set."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sent = time.perf_counter()
        client.sendall(request_bytes("/completion", {**body, "stream": True, "return_tokens": True}))
        rest, times, counts, last = b"", [], [], None
        while last is None:
            piece = client.recv(1 << 16)
            now = time.perf_counter()
            if not piece:
                raise Failure(f"port {port}: the stream broke off: {rest[:300]!r}")
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if line.startswith(b"error: ") or b'"error"' in line[:20] or line.startswith(b"HTTP/1.1 4"):
                    raise Failure(f"port {port}: {line[:300].decode(errors='replace')}")
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                if tokens := len(event.get("tokens", [])):
                    times.append(now)
                    counts.append(tokens)
                if event.get("stop"):
                    last = event
            if stop is not None and stop.is_set():
                break
    return {"sent": sent, "times": times, "counts": counts, "last": last}


def together(port, bodies):
    """completion() of all at once; in order."""
    results = [None] * len(bodies)
    gate = threading.Barrier(len(bodies))

    def run(i):
        gate.wait()
        try:
            results[i] = completion(port, bodies[i])
        except (Failure, OSError) as error:
            results[i] = error
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(bodies))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for r in results:
        if isinstance(r, Exception):
            raise Failure(str(r))
    return results


def first_ms(result):
    return (result["times"][0] - result["sent"]) * 1e3


def rate_after_first(result):
    """Tokens a second, of those after the first event's."""
    span = result["times"][-1] - result["times"][0]
    if span <= 0:
        raise Failure("every token came in one piece, so that no rate can be told: ask for more (-n)")
    return (sum(result["counts"]) - result["counts"][0]) / span


def total_rate(results):
    """Tokens of all, a second, from the first request to the last token."""
    span = max(r["times"][-1] for r in results) - min(r["sent"] for r in results)
    return sum(sum(r["counts"]) for r in results) / span


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
