"""The server under many clients, and under bad ones: every answer keeps its bits, every error is a
clear one, and nothing else is disturbed."""
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

import cli
from serving import TINY, Server, memory_of, read_all

CHATML = ("--chat-template", "chatml")
CHOICES = 60   # as many as take seconds
REQUESTS = 2000 if os.environ.get("LOCKSTEP_FULL") else 200  # scripts/test.sh --full
DRAFTER = TINY.replace("layers=2", "layers=1").replace("seed=5", "seed=6")


def mixed_requests(seed):
    """Of every surface, size, sampling and form, some with shared beginnings."""
    rng = random.Random(seed)
    beginnings = [[rng.randrange(10, 300) for _ in range(400)] for _ in range(3)]
    requests = []
    for _ in range(REQUESTS):
        body = {"seed": rng.randrange(1000), "max_tokens": rng.randrange(1, 24),
                "temperature": rng.choice([0, 0.8, 1.5]), "cache_prompt": rng.random() < 0.9}
        if rng.random() < 0.3:
            body["repeat_penalty"] = 1.2
        if rng.random() < 0.2:
            body["logit_bias"] = {str(rng.randrange(300)): -100}
        kind = rng.randrange(3)
        if kind == 0:
            body["messages"] = [{"role": "user", "content": "word " * rng.randrange(1, 60)}]
            path = "/v1/chat/completions"
        elif rng.random() < 0.6:
            body["prompt"] = rng.choice(beginnings)[:rng.randrange(1, 400)] + [rng.randrange(10, 300)]
            path = "/completion"
        else:
            body["prompt"] = "some text " * rng.randrange(1, 80)
            path = rng.choice(["/completion", "/v1/completions"])
        if path == "/v1/completions" and rng.random() < 0.4:
            body["n"] = 2
        requests.append((path, body, rng.random() < 0.5))
    return requests


def hashes(server, path, body, stream):
    """Of the tokens of every choice."""
    if stream:
        objects, _ = server.stream(path, body)
        found = {}
        for o in objects:
            if "lockstep" in o:
                index = o["index"] if "index" in o else o["choices"][0]["index"]
                found[index] = o["lockstep"]["token_sha256"]
        return [found[i] for i in sorted(found)]
    out = server.post(path, body)
    if "lockstep" in out:
        return [out["lockstep"]["token_sha256"]]
    return [c["lockstep"]["token_sha256"] for c in out["choices"]]


class Exactness(cli.CliTest):
    def test_each_answer_among_others_is_what_it_is_alone(self):
        requests = mixed_requests(1)
        with Server("-np", "1", "-t", "1", *CHATML) as server:
            alone = [hashes(server, path, {**body, "cache_prompt": False}, False) for path, body, _ in requests]
        self.assertGreater(len({h for hs in alone for h in hs}), REQUESTS // 2)
        # Fewer pages than all could want, chunks of another size, drafts of every kind.
        for parallel, *drafts in [(1, "--spec-type", "chain:ngram+suffix", "--spec-draft-n-max", "4"),
                                  (8, "-md", DRAFTER, "--spec-draft-n-max", "3"), (8, "--spec-type", "suffix")]:
            with self.subTest(parallel=parallel, drafts=drafts), \
                    Server("-np", parallel, "-c", "2048", "-t", "2", "-ub", "37", *drafts, *CHATML) as server:
                self.assertEqual(self.among_others(server, requests, parallel), alone)
                server.wait_idle()
                self.check_metrics(server, drafts=len(drafts) > 2)
                # Negative control: another seed is not the same.
                i = next(i for i, (_, body, _) in enumerate(requests)
                         if body["temperature"] > 1 and body["max_tokens"] > 10)
                path, body, _ = requests[i]
                self.assertNotEqual(hashes(server, path, {**body, "seed": 12345}, False), alone[i])
                self.assertEqual(server.stop(), 0)

    @staticmethod
    def among_others(server, requests, seed):
        """The same requests in another order, sixteen at a time, beside clients that leave."""
        order = list(range(len(requests)))
        random.Random(seed).shuffle(order)
        results, lock = {}, threading.Lock()

        def client():
            while True:
                with lock:
                    if not order:
                        return
                    i = order.pop()
                if i % 6 == 0:  # somebody who goes away in the middle, of a prompt or of an answer
                    length = 1500 if i % 12 == 0 else 50
                    gone = server.open_stream("/completion", {"prompt": [7 + j % 200 for j in range(length)],
                                                              "n_predict": 300})
                    if length < 100:
                        gone.recv(10)
                    gone.close()
                got = hashes(server, *requests[i])
                with lock:
                    results[i] = got
        threads = [threading.Thread(target=client) for _ in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return [results.get(i) for i in range(len(requests))]

    def check_metrics(self, server, drafts):
        """Beginnings were shared, drafts were made, clients left, and all memory is the tree's."""
        text = server.request("GET", "/metrics")[2].decode()
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        def value(name):
            return float(values[name])
        self.assertGreater(value("llamacpp:prompt_tokens_cached_total"), 1000)
        if drafts:  # of a depth that is fixed: where it is found out, plain decoding may win
            self.assertGreater(value("llamacpp:spec_decode_num_drafts_total"), 0)
        self.assertGreater(value("lockstep:answers_cancelled_total"), 0)
        self.assertEqual(value("lockstep:answers_failed_total"), 0)
        self.assertEqual(value("lockstep:kv_positions_reserved"), 0)
        self.assertGreater(value("lockstep:kv_positions_kept"), 0)
        self.assertLessEqual(value("lockstep:kv_positions_kept"), value("lockstep:kv_positions"))


class BadInput(cli.CliTest):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("-np", "2", "-t", "1", "-c", "4096", *CHATML)
        cls.addClassCleanup(cls.server.__exit__)
        cls.reference = cls.good()

    @classmethod
    def good(cls):
        return cls.server.post("/completion", {"prompt": "fine", "n_predict": 8, "seed": 1})["lockstep"]["token_sha256"]

    def tearDown(self):
        self.assertEqual(self.good(), self.reference)

    def bad(self, path, body, status=400, param=None, says="", within=5):
        begin = time.monotonic()
        got, error = self.server.error(path, body)
        took = time.monotonic() - begin
        self.assertEqual(got, status, error)
        self.assertEqual(error["code"], status)
        self.assertEqual(error["param"], param, error)
        self.assertIn(says, error["message"])
        self.assertLess(len(error["message"]), 1000)
        # Time enough for a machine that does something else as well.
        self.assertLess(took, within)

    def test_bodies_that_are_no_requests(self):
        for body in [b"", b"{", b"[]", b"nonsense", b"{\"prompt\": NaN}", b"{\"prompt\": \"\xff\xfe\"}", b"\x00" * 100,
                     b"[" * 200_000, b"{\"a\":" * 100_000, b"{\"prompt\": \"a\", \"temperature\": 1e999}"]:
            for path in ["/completion", "/v1/chat/completions", "/tokenize"]:
                self.bad(path, body)

    def test_fields_that_are_wrong(self):
        for field, value in [("temperature", "x"), ("top_k", 10**30), ("n_predict", 1.5), ("seed", -1.5), ("stop", 3),
                             ("repeat_penalty", -1), ("logit_bias", {"999999": 1}), ("n", 0), ("id_slot", 7),
                             ("mirostat", 2), ("grammar", "root ::= \"a\""), ("stream", "yes")]:
            self.bad("/completion", {"prompt": "a", field: value}, param=field)
        self.bad("/completion", {"prompt": [10**6]}, param="prompt")
        self.bad("/completion", {"prompt": []}, param="prompt")
        self.bad("/v1/chat/completions", {"messages": []}, param="messages")
        self.bad("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "tools": [{}]}, param="tools[0].function")
        self.bad("/detokenize", {"tokens": ["a"]}, param="tokens[0]")

    def test_prompts_past_the_context(self):
        status, error = self.server.error("/completion", {"prompt": [7] * 2048})
        self.assertEqual((status, error["type"], error["n_prompt_tokens"], error["n_ctx"]),
                         (400, "exceed_context_size_error", 2048, 2048))

    def test_a_hundred_megabytes(self):
        before = memory_of(self.server.process.pid)
        self.bad("/completion", b"x" * 100_000_000, status=413, within=60)
        self.assertLess(memory_of(self.server.process.pid) - before, 64 << 20)

    def test_headers_without_end(self):
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=30) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nX: " + b"a" * 100_000)
            self.assertIn(b" 431 ", client.recv(1000))
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=30) as client:
            client.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 no TLS here\r\n\r\n")
            self.assertIn(b" 400 ", client.recv(1000))

    def test_parts_of_chunks_that_are_no_body(self):
        head = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        before = memory_of(self.server.process.pid)
        for begin, more in [(b"2;a=", b"x" * 65536), (b"2\r\n{}\r\n0\r\n", b"A: " + b"b" * 1000 + b"\r\n")]:
            with socket.create_connection(("127.0.0.1", self.server.port), timeout=30) as client:
                client.sendall(head + begin)
                try:   # it may be said and done with before all is sent
                    for _ in range((32 << 20) // len(more)):
                        client.sendall(more)
                    self.assertIn(b" 431 ", client.recv(1000))
                except OSError:
                    pass
        self.assertLess(memory_of(self.server.process.pid) - before, 16 << 20)

    def test_codings_that_are_not_known(self):
        for line, status in [(b"Transfer-Encoding: gzip", 501), (b"Content-Encoding: gzip\r\nContent-Length: 2", 415)]:
            with socket.create_connection(("127.0.0.1", self.server.port), timeout=30) as client:
                client.sendall(b"POST /tokenize HTTP/1.1\r\nHost: x\r\n" + line +
                               b"\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                answer = read_all(client)
                self.assertEqual(answer.count(b"HTTP/1.1 "), 1, answer)
                self.assertIn(b" %d " % status, answer[:20])

    def test_requests_sent_by_halves(self):
        halves = []
        for data in [b"", b"GET /hea", b"POST /completion HTTP/1.1\r\nContent-Length: 100\r\n"] * 20:
            client = socket.create_connection(("127.0.0.1", self.server.port), timeout=60)
            client.sendall(data)
            halves.append((data, client))
        self.assertEqual(self.good(), self.reference)
        for data, client in halves:
            answer = read_all(client)
            client.close()
            # One that said nothing is not answered; one that began is told.
            self.assertEqual(b" 408 " in answer[:100], bool(data), answer)

    def test_several_requests_in_one_piece(self):
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=30) as client:
            one = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
            client.sendall(one * 5 + b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n")
            self.assertEqual(read_all(client).count(b"HTTP/1.1 200 OK"), 6)

    def test_a_client_that_goes_away_frees_its_slot(self):
        for body in [{"prompt": [7 + i % 200 for i in range(1500)], "n_predict": 400, "ignore_eos": True},
                     {"prompt": "a", "n_predict": 1800, "ignore_eos": True}]:
            client = self.server.open_stream("/completion", body)
            while not any(s["is_processing"] for s in self.server.get("/slots")):
                time.sleep(0.005)
            client.close()
            self.assertLess(self.server.wait_idle(), 10)

    def test_nothing_is_kept_of_clients_that_go_away(self):
        """In the middle of their answers, of which the next begin at once, on cores that are busy."""
        with Server("-np", "8", "-t", "2", "--queue", "1000", "-c", "16384") as server:
            def client(rounds):
                for number in range(rounds):
                    with server.open_stream("/completion", {"prompt": [20, 30, number + 40], "n_predict": 1900,
                                                            "ignore_eos": True}) as stream:
                        for _ in range(8):
                            stream.recv(4096)
            threads = [threading.Thread(target=client, args=(25,)) for _ in range(16)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()

            def connections():
                _, _, text = server.request("GET", "/metrics")
                return int(re.search(rb"^lockstep:http_connections (\d+)", text, re.MULTILINE)[1])
            deadline = time.monotonic() + 10
            while (left := connections()) > 1 and time.monotonic() < deadline:
                time.sleep(0.1)
            self.assertLessEqual(left, 1)  # the one that asks

    def test_a_client_that_goes_away_in_the_middle_of_its_prompt(self):
        def value(server, name):
            text = server.request("GET", "/metrics")[2].decode()
            return float(text.split(f"\n{name} ")[1].split()[0])
        rows = 1900
        with Server("-np", "1", "-t", "1", "-ub", "1") as server:  # a pass for every token of the prompt
            client = server.open_stream("/completion", {"prompt": [7 + i % 200 for i in range(rows)], "n_predict": 5})
            while value(server, "llamacpp:n_decode_total") < 5:
                time.sleep(0.001)
            client.close()
            server.wait_idle()
            self.assertEqual(value(server, "lockstep:answers_cancelled_total"), 1)
            self.assertLess(value(server, "llamacpp:n_decode_total"), rows)
            # What was computed stays for the next one who begins alike, and is right.
            body = {"prompt": [7 + i % 200 for i in range(rows)], "n_predict": 5, "seed": 1}
            got = server.post("/completion", body)
            alone = server.post("/completion", {**body, "cache_prompt": False})
            self.assertEqual(got["lockstep"]["token_sha256"], alone["lockstep"]["token_sha256"])
            self.assertGreater(got["timings"]["cache_n"], 0)
            self.assertEqual(alone["timings"]["cache_n"], 0)

    def test_a_client_that_asked_for_more_and_goes_away(self):
        """Its next request lies there unread, so that there always is something to read."""
        def passes(server):
            return float(server.request("GET", "/metrics")[2].decode().split("\nllamacpp:n_decode_total ")[1].split()[0])
        body = json.dumps({"prompt": "a", "n_predict": 1900, "ignore_eos": True, "n": CHOICES, "seed": 1}).encode()
        with Server("-np", "1", "-t", "1") as server:
            for reset in (False, True):
                client = socket.create_connection(("127.0.0.1", server.port), timeout=30)
                client.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                while not any(slot["is_processing"] for slot in server.get("/slots")):
                    time.sleep(0.001)
                client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                time.sleep(0.3)
                if reset:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
                time.sleep(0.8)
                once = passes(server)
                time.sleep(0.5)
                self.assertEqual(passes(server), once)

    def test_one_who_does_not_read_slows_nobody(self):
        body = {"prompt": "a", "n_predict": 2000, "ignore_eos": True, "n_probs": 40, "seed": 1}
        deaf = self.server.open_stream("/completion", body)
        begin = time.monotonic()
        while not any(s.get("is_paused") for s in self.server.get("/slots")):
            self.assertLess(time.monotonic() - begin, 120)
            time.sleep(0.05)
        self.assertEqual(self.good(), self.reference)
        # It goes on where it is read after all, and says what it would have.
        data = b""
        while b"\"stop\":true" not in data:
            piece = deaf.recv(1 << 20)
            self.assertTrue(piece)
            data = data[-100:] + piece
        deaf.close()
        self.server.wait_idle()


class Limits(cli.CliTest):
    def test_a_full_queue_says_when_to_come_again(self):
        with Server("-np", "1", "--queue", "1", "-t", "1") as server:
            body = {"prompt": "a", "n_predict": 2000, "ignore_eos": True}
            busy = [server.open_stream("/completion", body) for _ in range(2)]
            begin = time.monotonic()
            while True:
                status, headers, answer = server.request("POST", "/completion", {"prompt": "a", "n_predict": 1})
                if status == 503 or time.monotonic() - begin > 30:
                    break
            self.assertEqual(status, 503)
            self.assertEqual(headers["Retry-After"], "1")
            self.assertEqual(json.loads(answer)["error"]["type"], "unavailable_error")
            for client in busy:
                client.close()
            # The server hears of it when it next reads, and may not even have begun with them.
            begin = time.monotonic()
            while (status := server.request("POST", "/completion", {"prompt": "a", "n_predict": 1})[0]) == 503:
                self.assertLess(time.monotonic() - begin, 30)
                time.sleep(0.01)
            self.assertEqual(status, 200)

    def test_keys(self):
        with Server("-t", "1", "--api-key", "one,two") as server:
            self.assertEqual(server.request("GET", "/health")[0], 200)
            self.assertEqual(server.request("GET", "/v1/models")[0], 200)
            for headers, expected in [({}, 401), ({"Authorization": "Bearer no"}, 401), ({"Authorization": "two"}, 401),
                                      ({"Authorization": "Bearer two"}, 200), ({"X-Api-Key": "one"}, 200),
                                      ({"Authorization": "bearer two"}, 200), ({"Authorization": "Bearertwo"}, 401)]:
                self.assertEqual(server.request("GET", "/props", headers=headers)[0], expected, headers)
            self.assertFalse(any("one,two" in line or "two" in line.split() for line in server.log))

    def test_many_idle_clients_need_more_files_than_a_shell_gives(self):
        limited = ("bash", "-c", "ulimit -Sn 256; exec \"$0\" \"$@\"")
        with Server("-t", "1", prefix=limited) as server:
            clients = []
            try:
                for _ in range(400):
                    clients.append(socket.create_connection(("127.0.0.1", server.port), timeout=30))
                self.assertEqual(server.get("/health"), {"status": "ok"})
                metrics = server.request("GET", "/metrics")[2].decode()
                open_now = int(metrics.split("\nlockstep:http_connections ")[1].split()[0])
                self.assertGreaterEqual(open_now, 400)
            finally:
                for client in clients:
                    client.close()


class Endings(cli.CliTest):
    def test_sigterm_lets_a_running_answer_end(self):
        with Server("-np", "1", "-t", "1") as server:
            client = server.open_stream("/completion", {"prompt": "a", "n_predict": 1500, "seed": 1, "ignore_eos": True})
            head = client.recv(200)
            idle = server.connect()
            idle.request("GET", "/health")
            idle.getresponse().read()
            server.process.send_signal(signal.SIGTERM)
            answer = read_all(client)
            self.assertIn(b"200 OK", head + answer)
            last = (head + answer).split(b"data: ")[-1]
            # To its end, or, on a slow machine, to an error that says so; never just cut off.
            self.assertTrue(b"\"stop\":true" in last or b"shutting down" in last, last[:200])
            self.assertIn(b"0\r\n\r\n", last)
            client.close()
            idle.close()
            self.assertEqual(server.stop(None), 0)
            self.assertIn("lockstep: stopped", server.log)

    def test_nothing_new_begins_after_sigterm_and_nothing_idle_is_waited_for(self):
        with Server("-np", "1", "-t", "1") as server:
            idle, over = server.open_stream("/completion", {"prompt": "a", "n_predict": 1}), socket.create_connection(
                ("127.0.0.1", server.port), timeout=30)
            over.sendall(b"BAD\r\n\r\n")   # answered, and not closed by the client
            self.assertIn(b"400", over.recv(1000))
            client = server.open_stream("/completion", {"prompt": "a", "n_predict": 2000, "ignore_eos": True, "n_probs": 20})
            client.recv(100)
            server.process.send_signal(signal.SIGTERM)
            while not any("stopping" in line for line in server.log):
                time.sleep(0.01)
            time.sleep(0.1)
            with self.assertRaises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", server.port), timeout=30)
            client.close()
            begin = time.monotonic()
            self.assertEqual(server.stop(None), 0)
            self.assertLess(time.monotonic() - begin, 4)
            idle.close()
            over.close()

    def test_a_second_signal_does_not_wait(self):
        with Server("-np", "1", "-t", "1") as server:
            client = server.open_stream("/completion", {"prompt": "a", "n_predict": 2000, "ignore_eos": True, "n_probs": 20})
            client.recv(100)
            server.process.send_signal(signal.SIGTERM)
            while not any("stopping" in line for line in server.log):
                time.sleep(0.01)
            self.assertIn(server.stop(), [-signal.SIGTERM, 0])
            client.close()

    def test_kill_ends_it_and_the_port_is_free_again(self):
        with Server("-t", "1") as server:
            port = server.port
            client = server.open_stream("/completion", {"prompt": "a", "n_predict": 2000, "ignore_eos": True, "n_probs": 20})
            head = client.recv(100)
            self.assertEqual(server.stop(signal.SIGKILL), -signal.SIGKILL)
            # Whoever was in the middle of an answer can tell: it has no end.
            answer = head + read_all(client)
            self.assertNotIn(b"\"stop\":true", answer)
            self.assertFalse(answer.endswith(b"0\r\n\r\n"))
            client.close()
        with Server("-t", "1", "--port", port) as again:
            self.assertEqual(again.port, port)

    def test_a_port_that_is_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.refused("serve", "-m", TINY, "--port", port, code=cli.RESOURCE, says=[str(port), "--port"])

    def test_bad_use(self):
        self.refused("serve", says="-m")
        self.refused("serve", "-m", TINY, "--host", "nowhere.example", says="--host")
        self.refused("serve", "-m", TINY, "--port", "70000", says="--port")
        self.refused("serve", "-m", TINY, "-np", "0", says="-np")
        self.refused("serve", "-m", TINY, "--ssl-key-file", "x", says="TLS")
        self.refused("serve", "-m", "/nonexistent.gguf", "--port", "0", code=cli.BAD_FILE, says="/nonexistent.gguf")

    def test_ends_in_order_when_threads_are_slow_to_be_known(self):
        # Whoever starts a thread goes on some time after it: here always, so that what the thread does first
        # comes before its starter has stored it.
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "late.so"
            subprocess.run(["c++", "-shared", "-fPIC", "-x", "c++", "-", "-o", library, "-ldl"], check=True, text=True, input="""
                #include <dlfcn.h>
                #include <pthread.h>
                #include <unistd.h>
                extern "C" int pthread_create(pthread_t* t, const pthread_attr_t* a, void* (*f)(void*), void* x) noexcept {
                  static const auto real = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
                  const int result = real(t, a, f, x);
                  usleep(50000);
                  return result;
                }""")
            done = subprocess.run([str(cli.BINARY), "serve", "-m", "/nonexistent.gguf", "--port", "0"], capture_output=True,
                                  env={**cli.clean_environment(), "LD_PRELOAD": str(library)}, timeout=60)
        self.assertEqual(done.returncode, cli.BAD_FILE, done.stderr)

    def test_a_model_file_that_is_removed_meanwhile(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.gguf"
            self.check("synth", TINY, "-o", path)
            with Server("-t", "1", model=path) as server:
                body = {"prompt": "a", "n_predict": 10, "seed": 1}
                before = server.post("/completion", body)
                path.unlink()
                after = server.post("/completion", {**body, "cache_prompt": False})
                self.assertEqual(before["lockstep"]["token_sha256"], after["lockstep"]["token_sha256"])


if __name__ == "__main__":
    unittest.main()
