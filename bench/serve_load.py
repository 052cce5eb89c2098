#!/usr/bin/env python3
"""What active streams lose to clients that only take up room, and whether those go away again.

    bench/serve_load.py -m synth:llama-1.2b@q8_0 -t 2 --out rows.jsonl

The server runs with a soft limit of 1024 open files (it raises its own). Windows of --seconds, in which
--streams active streams are counted token by token, take turns: alone, and beside --half half-sent
requests (headers or bodies; opened anew when the server drops them), --unread streams that have ended and
that nobody reads, and --idle connections that keep open between requests. Then all clients wait, and the
time until the server has dropped every one of them is taken. Memory is the server's resident set.

Writes every window to --out as a JSON line when it is made, and a Markdown table to standard output. Exit
code 1: streams kept less than --keep of their speed, or something stays.
"""
import argparse
import json
import os
import random
import resource
import socket
import statistics
import sys
import threading
import time
from pathlib import Path

from cpu_table import Failure, show
from serve_clients import Server, completion, request_bytes

SOFT_LIMIT = 1024
GONE_SECONDS = 180


def connect(port):
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)   # so that not reading is soon felt
    client.settimeout(60)
    client.connect(("127.0.0.1", port))
    return client


class Crowd:
    """The clients that only take up room."""

    def __init__(self, server, args):
        self.server, self.args = server, args
        self.half, self.unread, self.idle = [], [], []
        self.reopened = 0

    def open_half(self, i):
        client = connect(self.server.port)
        client.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\n" if i % 2 else
                       b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"prompt\": ")
        return client

    def come(self):
        for i in range(self.args.unread):
            client = connect(self.server.port)
            client.sendall(request_bytes("/completion", {"prompt": [20 + i % 200], "n_predict": 4, "stream": True, "n_probs": 40,
                                                         "ignore_eos": True, "return_tokens": True}))
            self.unread.append(client)
        begin = time.monotonic()
        while self.server.metric("llamacpp:requests_processing") + self.server.metric("llamacpp:requests_deferred") > 0:
            if time.monotonic() - begin > 600:
                raise Failure("the streams that nobody reads have not ended in 600 s; give fewer with --unread")
            time.sleep(0.05)
        for i in range(self.args.half):
            self.half.append(self.open_half(i))
        for _ in range(self.args.idle):
            client = connect(self.server.port)
            client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            client.recv(1000)
            self.idle.append(client)

    def keep_up(self):
        """Half-sent requests that were dropped are opened anew."""
        for i, client in enumerate(self.half):
            client.setblocking(False)
            try:
                dropped = client.recv(1000) is not None
            except BlockingIOError:
                dropped = False
            except OSError:
                dropped = True
            if dropped:
                client.close()
                self.half[i] = self.open_half(i)
                self.reopened += 1

    def leave(self):
        for client in self.half + self.unread + self.idle:
            client.close()
        self.half, self.unread, self.idle = [], [], []


def window(server, args, crowd):
    """Tokens a second of all active streams, in so many seconds, from when each has begun."""
    stop = threading.Event()
    times, failures, lock, begun = [], [], threading.Lock(), threading.Semaphore(0)

    def run(number):
        rng = random.Random(number)
        try:
            while not stop.is_set():
                ids = [rng.randrange(10, 250) for _ in range(8)]
                ask = {"prompt": ids, "n_predict": args.tokens, "seed": number, "temperature": 0, "ignore_eos": True}
                result = completion(server.port, ask, stop=stop)
                with lock:
                    for t, n in zip(result["times"], result["counts"]):
                        times.append((t, n))
                begun.release()
        except (Failure, OSError) as error:
            failures.append(str(error))
            begun.release()
    threads = [threading.Thread(target=run, args=(i,)) for i in range(args.streams)]
    for t in threads:
        t.start()
    while server.metric("llamacpp:requests_processing") < args.streams and not failures:
        time.sleep(0.01)
    first = time.perf_counter() + 0.2
    while time.perf_counter() < first + args.seconds:
        if crowd:
            crowd.keep_up()
        time.sleep(0.2)
    memory, connections = server.resident(), server.metric("lockstep:http_connections")
    stop.set()
    for t in threads:
        t.join()
    if failures:
        raise Failure(f"an active stream failed: {failures[0]}")
    counted = sum(n for t, n in times if first <= t < first + args.seconds)
    return {"rate": counted / args.seconds, "memory": memory, "connections": connections}


def wait_gone(server):
    begin = time.monotonic()
    while time.monotonic() - begin < GONE_SECONDS:
        if (left := server.metric("lockstep:http_connections")) <= 1:   # the one that asks
            return time.monotonic() - begin
        time.sleep(0.5)
    raise Failure(f"after {GONE_SECONDS} s {left:.0f} connections are still open")


def parse_arguments(argv):
    root = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="synth:llama-1.2b@q8_0", metavar="FILE", help="(default: %(default)s)")
    parser.add_argument("--lockstep", default=str(root / "build/release/lockstep"), metavar="PATH")
    parser.add_argument("--lockstep-args", default="", metavar="ARGS", help="further arguments of lockstep serve")
    parser.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--half", type=int, default=400, metavar="N")
    parser.add_argument("--unread", type=int, default=400, metavar="N")
    parser.add_argument("--idle", type=int, default=200, metavar="N")
    parser.add_argument("--streams", type=int, default=8, metavar="N")
    parser.add_argument("-n", "--tokens", type=int, default=1000, metavar="N", help="of an active answer (default: 1000)")
    parser.add_argument("--seconds", type=float, default=10, metavar="S", help="of a window (default: 10)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="windows of each kind (default: 3)")
    parser.add_argument("--no-wait", action="store_true", help="do not wait until the server has dropped all clients")
    parser.add_argument("--keep", type=float, default=0.8, metavar="SHARE", help="(default: 0.8)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="every window as a JSON line, appended")
    args = parser.parse_args(argv)
    if args.rounds < 1 or args.streams < 1 or args.seconds <= 0:
        raise Failure("--rounds and --streams must be 1 or more, --seconds more than 0")
    return args


def main(argv):
    args = parse_arguments(argv)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = args.half + args.unread + args.idle + args.streams + 200
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise Failure(f"{wanted} open files are needed and {hard} allowed; raise the hard limit, or give fewer clients")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    limited = ("bash", "-c", f"ulimit -Sn {SOFT_LIMIT}; exec \"$0\" \"$@\"")
    command = [args.lockstep, "serve", "-m", args.model, "--port", 0, "-np", args.streams, "--queue", 100_000, "-t",
               args.threads, "-c", args.streams * (args.tokens + 128) + 1024, *args.lockstep_args.split()]
    rows = []
    with open(args.out, "a") as out, Server("lockstep", command, prefix=limited) as server:
        before = server.resident()

        def measure(kind, number, crowd=None):
            show(f"round {number + 1}/{args.rounds}: {kind}")
            row = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "model": args.model, "kind": kind,
                   "round": number, "streams": args.streams, "threads": args.threads, **window(server, args, crowd),
                   "half": args.half, "unread": args.unread, "idle": args.idle}
            rows.append(row)
            out.write(json.dumps(row) + "\n")
            out.flush()
        crowd = Crowd(server, args)
        for number in range(args.rounds):
            measure("alone", number)
            show(f"round {number + 1}/{args.rounds}: clients come")
            crowd.come()
            measure("beside", number, crowd)
            if number + 1 < args.rounds:
                crowd.leave()
        gone = "(not waited for)"
        if not args.no_wait:
            show("waiting for the time-outs")
            gone = f"{wait_gone(server):.0f} s"
        crowd.leave()
        after = server.resident()
        if server.get("/health")[0] != 200:
            raise Failure("the server is not well afterwards")
        show("")
    alone = statistics.median(r["rate"] for r in rows if r["kind"] == "alone")
    beside = [r for r in rows if r["kind"] == "beside"]
    ratios = [b["rate"] / a["rate"] for a, b in zip((r for r in rows if r["kind"] == "alone"), beside)]
    print("| | |\n| :--- | ---: |")
    for name, value in [
            ("active streams", args.streams), ("tok/s of all, alone", f"{alone:.2f}"),
            (f"beside {args.half} half-sent, {args.unread} unread, {args.idle} idle",
             f"{statistics.median(r['rate'] for r in beside):.2f}"),
            ("ratio, median of pairs", f"{statistics.median(ratios):.3f}"), ("least", f"{min(ratios):.3f}"),
            ("connections then", f"{max(r['connections'] for r in beside):.0f}"),
            ("half-sent requests dropped and opened anew", crowd.reopened),
            ("memory at start", f"{before / 1e6:.1f} MB"),
            ("memory alone", f"{max(r['memory'] for r in rows if r['kind'] == 'alone') / 1e6:.1f} MB"),
            ("memory beside them", f"{max(r['memory'] for r in beside) / 1e6:.1f} MB"),
            ("memory after", f"{after / 1e6:.1f} MB"), ("all gone after", gone)]:
        print(f"| {name} | {value} |")
    return 0 if statistics.median(ratios) >= args.keep else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failure as failure:
        sys.exit(f"serve_load: {failure}")
    except OSError as error:
        sys.exit(f"serve_load: {error.filename}: {error.strerror}")
