"""A server for tests: started on a free port, talked to as a client would."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import cli

TINY = "synth:llama-tiny,layers=2,embd=64,heads=2,kv_heads=1,head_dim=32,ffn=128,ctx=2048@q8_0,seed=5"


class Server:
    """Runs `lockstep serve` until it is left; its standard error is in `log`."""

    def __init__(self, *arguments, model=TINY, env=None, prefix=()):
        self.log = []
        self.process = subprocess.Popen(
            [*prefix, str(cli.BINARY), "serve", "-m", str(model), "--port", "0", *map(str, arguments)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=cli.clean_environment(**(env or {})), text=True, errors="replace")
        self.port = None
        for line in self.process.stderr:
            self.log.append(line.rstrip("\n"))
            found = re.search(r"listening on https?://[^ ]*:(\d+)(\"|$)", line)
            if found:
                self.port = int(found[1])
                break
        if self.port is None:
            self.process.wait()
            self.process.stdout.close()
            self.process.stderr.close()
            raise RuntimeError(f"exit {self.process.returncode}: {self.log}")
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.log.append(line.rstrip("\n"))

    def stop(self, number=signal.SIGTERM, timeout=60):
        """The exit code; number None: a signal was sent already."""
        if number is not None and self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout)
        self._close()
        return code

    def _close(self):
        self.reader.join(60)
        self.process.stdout.close()
        self.process.stderr.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._close()

    def connect(self, timeout=120):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None, timeout=120):
        """Status, headers and body of a request on a connection of its own; an object is sent as JSON."""
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        connection = self.connect(timeout)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def get(self, path, **options):
        status, _, body = self.request("GET", path, **options)
        assert status == 200, (path, status, body)
        return json.loads(body)

    def post(self, path, body, **options):
        status, _, answer = self.request("POST", path, body, **options)
        assert status == 200, (path, status, answer[:1000])
        return json.loads(answer)

    def error(self, path, body, **options):
        """Status and error object of a request that is refused."""
        status, headers, answer = self.request("POST", path, body, **options)
        assert status >= 400, (path, status, answer[:1000])
        return status, json.loads(answer)["error"]

    def stream(self, path, body):
        """The objects of a stream, and whether it ended with [DONE]."""
        status, headers, answer = self.request("POST", path, {**body, "stream": True})
        assert status == 200 and headers["Content-Type"] == "text/event-stream", (status, answer[:500])
        return events(answer)

    def open_stream(self, path, body):
        """A raw socket on which the request has been sent."""
        data = json.dumps({**body, "stream": True}).encode()
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)  # so that not reading is soon felt
        client.settimeout(120)
        client.connect(("127.0.0.1", self.port))
        client.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data)
        return client

    def wait_idle(self, seconds=30):
        """Waits until no slot is busy and nothing waits; how long that took."""
        begin = time.monotonic()
        while time.monotonic() - begin < seconds:
            if not any(slot["is_processing"] for slot in self.get("/slots")):
                return time.monotonic() - begin
            time.sleep(0.01)
        raise AssertionError(f"still busy: {self.get('/slots')}")


def events(answer):
    objects, done = [], False
    for block in answer.decode().split("\n\n"):
        if not block:
            continue
        assert block.startswith("data: ") and "\n" not in block and not done, block
        if block == "data: [DONE]":
            done = True
        else:
            objects.append(json.loads(block[6:]))
    return objects, done


def read_all(client):
    """What comes on a raw socket until the other side closes it, or nothing comes for its time-out."""
    data = b""
    try:
        while piece := client.recv(1 << 16):
            data += piece
    except OSError:
        pass
    return data


def memory_of(pid):
    """Resident bytes."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
