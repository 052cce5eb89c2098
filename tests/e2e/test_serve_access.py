"""Who may ask and how: CORS, TLS, names of models; and what the server says of itself: its log, its metrics."""
import http.client
import json
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import unittest

import cli
from cli import BAD_FILE, BAD_USE
from serving import TINY, Server, events

PAGE = "https://chat.example"
HI = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "seed": 1}


class Origins(cli.CliTest):
    def preflight(self, server, origin):
        return server.request("OPTIONS", "/v1/chat/completions", headers={
            "Origin": origin, "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type"})

    def test_off_unless_named(self):
        with Server("-t", "1") as server:
            for method, path in [("GET", "/v1/models"), ("OPTIONS", "/v1/chat/completions")]:
                _, headers, _ = server.request(method, path, headers={"Origin": PAGE, "Access-Control-Request-Method": "POST"})
                self.assertFalse([name for name in headers if name.startswith("Access-Control")])

    def test_named_origins_alone(self):
        with Server("-t", "1", "--cors-origins", f"{PAGE},localhost", "--api-key", "secret", "--chat-template", "chatml") as server:
            for origin, allowed in [(PAGE, True), ("http://localhost:3000", True), ("http://127.0.0.1", True),
                                    ("http://[::1]:80", True), ("http://chat.example", False), ("null", False),
                                    ("https://chat.example.evil", False), ("http://localhost.evil", False),
                                    ("http://localhost:80.evil", False), ("https://evil", False)]:
                # A browser asks before it sends the key.
                status, headers, _ = self.preflight(server, origin)
                self.assertEqual(status, 200)
                self.assertEqual(headers["Access-Control-Allow-Origin"], origin if allowed else None)
                self.assertEqual(headers["Access-Control-Allow-Headers"], "authorization,content-type" if allowed else None)
                self.assertEqual(headers["Vary"], "Origin")
                for sent, expected in [({}, 401), ({"Authorization": "Bearer secret"}, 200)]:
                    status, headers, _ = server.request("POST", "/v1/chat/completions", HI, headers={"Origin": origin, **sent})
                    self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (expected, origin if allowed else None))
            # A stream's headers say it, too.
            _, headers, _ = server.request("POST", "/v1/chat/completions", {**HI, "stream": True},
                                           headers={"Origin": PAGE, "Authorization": "Bearer secret"})
            self.assertEqual(headers["Access-Control-Allow-Origin"], PAGE)

    def test_any_and_what_is_no_origin(self):
        with Server("-t", "1", "--cors-origins", "*") as server:
            self.assertEqual(self.preflight(server, "https://evil")[1]["Access-Control-Allow-Origin"], "*")
        for wrong in ["chat.example", "https://chat.example/", "https://"]:
            self.refused("serve", "-m", TINY, "--port", "0", "--cors-origins", wrong, says=["--cors-origins", wrong])


@unittest.skipUnless(shutil.which("openssl"), "no openssl to make a certificate with")
class Tls(cli.CliTest):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.key, cls.certificate = cls.folder / "key.pem", cls.folder / "certificate.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", cls.key, "-out", cls.certificate,
                        "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
                       check=True, capture_output=True)

    def serve(self, *arguments):
        server = Server("-t", "1", "-np", "2", "--chat-template", "chatml", "--ssl-key-file", self.key, "--ssl-cert-file",
                        self.certificate, *arguments)
        self.addCleanup(server.__exit__)
        return server

    def connect(self, server):
        context = ssl.create_default_context(cafile=str(self.certificate))
        return http.client.HTTPSConnection("127.0.0.1", server.port, timeout=60, context=context)

    def ask(self, connection, body, path="/v1/chat/completions"):
        connection.request("POST", path, json.dumps(body))
        response = connection.getresponse()
        return response.status, response.read()

    def test_answers_and_streams(self):
        server = self.serve()
        self.assertIn("https://", next(line for line in server.log if "listening" in line))
        connection = self.connect(server)
        texts = []
        for _ in range(3):  # on one connection
            status, body = self.ask(connection, HI)
            self.assertEqual(status, 200)
            texts.append(json.loads(body)["choices"][0]["message"]["content"])
            status, body = self.ask(connection, {**HI, "stream": True})
            chunks, done = events(body)
            self.assertTrue(done)
            texts.append("".join(c["choices"][0]["delta"].get("content") or "" for c in chunks))
        self.assertEqual(len(set(texts)), 1)
        status, body = self.ask(connection, {"content": "x" * 2_000_000}, "/tokenize")  # many records
        self.assertEqual(status, 200)
        connection.close()
        with Server("-t", "1", "--chat-template", "chatml") as plain:
            self.assertEqual(plain.post("/v1/chat/completions", HI)["choices"][0]["message"]["content"], texts[0])

    def test_curl(self):
        if not shutil.which("curl"):
            self.skipTest("no curl")
        server = self.serve("--api-key", "secret")
        done = subprocess.run(["curl", "-sS", "--cacert", self.certificate, f"https://127.0.0.1:{server.port}/v1/chat/completions",
                               "-H", "Authorization: Bearer secret", "-d", json.dumps(HI)], capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["usage"]["completion_tokens"], 4)
        trusting_none = subprocess.run(["curl", "-sS", f"https://127.0.0.1:{server.port}/health"], capture_output=True, timeout=60)
        self.assertNotEqual(trusting_none.returncode, 0)

    def test_a_client_that_goes_away(self):
        server = self.serve("--ignore-eos")
        for stream in (True, False):
            connection = self.connect(server)
            connection.request("POST", "/v1/chat/completions", json.dumps({**HI, "max_tokens": 1900, "stream": stream}))
            if stream:
                connection.getresponse().read(100)
            else:
                while not any(slot["is_processing"] for slot in self.slots(server)):
                    time.sleep(0.01)
            connection.sock.close()
            connection.close()
            end = time.monotonic() + 20
            while any(slot["is_processing"] for slot in self.slots(server)):
                self.assertLess(time.monotonic(), end)
                time.sleep(0.01)

    def test_a_client_that_leaves_without_a_word_of_tls(self):
        server = self.serve()
        context = ssl.create_default_context(cafile=str(self.certificate))
        for _ in range(3):
            client = context.wrap_socket(socket.create_connection(("127.0.0.1", server.port), timeout=30),
                                         server_hostname="127.0.0.1")
            client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            while client.recv(1000):
                pass
            client.close()
        end = time.monotonic() + 3   # not the ten seconds that a client may take to read
        while True:
            connection = self.connect(server)
            connection.request("GET", "/metrics")
            metrics = connection.getresponse().read().decode()
            connection.close()
            if metrics.split("\nlockstep:http_connections ")[1].split()[0] == "1":
                break
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)

    def slots(self, server):
        connection = self.connect(server)
        connection.request("GET", "/slots")
        slots = json.loads(connection.getresponse().read())
        connection.close()
        return slots

    def test_who_speaks_no_tls_disturbs_nobody(self):
        server = self.serve()
        with self.assertRaises((http.client.HTTPException, OSError)):
            plain = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
            plain.request("GET", "/health")
            plain.getresponse()
        status, _ = self.ask(self.connect(server), HI)
        self.assertEqual(status, 200)
        self.assertEqual(server.stop(), 0)

    def test_files_that_cannot_be_used(self):
        nothing, wrong = self.folder / "nothing.pem", self.folder / "wrong.pem"
        wrong.write_text("no PEM")
        other = self.folder / "other.pem"
        subprocess.run(["openssl", "genrsa", "-out", other, "2048"], check=True, capture_output=True)
        kind = self.folder / "kind.pem"   # of another kind than the certificate's
        subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", kind], check=True,
                       capture_output=True)
        start = ("serve", "-m", TINY, "--port", "0")
        for key, certificate, blamed in [(nothing, self.certificate, nothing), (wrong, self.certificate, wrong),
                                         (self.key, wrong, wrong), (self.key, nothing, nothing),
                                         (other, self.certificate, other), (kind, self.certificate, kind),
                                         (self.folder, self.certificate, self.folder),
                                         (self.key, pathlib.Path("/dev/zero"), pathlib.Path("/dev/zero"))]:
            self.refused(*start, "--ssl-key-file", key, "--ssl-cert-file", certificate, code=BAD_FILE, says=blamed.name)
        self.refused(*start, "--ssl-key-file", self.key, code=BAD_USE, says="--ssl-cert-file")
        self.refused(*start, "--ssl-key-file", "", "--ssl-cert-file", "", code=BAD_USE, says="--ssl-key-file")


class Names(cli.CliTest):
    """One model, whatever a client calls it, as in llama-server; its answers say which it is."""

    def test_any_name_is_served(self):
        with Server("-t", "1", "--alias", "tiny", "--chat-template", "chatml") as server:
            for model in ["tiny", "gpt-4o", "", None]:
                self.assertEqual(server.post("/v1/chat/completions", {**HI, "model": model})["model"], "tiny")
            status, error = server.error("/v1/chat/completions", {**HI, "model": 5})
            self.assertEqual((status, error["param"]), (400, "model"))
            self.assertEqual(server.get("/v1/models/tiny")["id"], "tiny")
            status, _, body = server.request("GET", "/v1/models/gpt-4o")
            self.assertEqual((status, json.loads(body)["error"]["param"]), (404, "model"))


class Log(cli.CliTest):
    def test_every_line_is_an_object(self):
        server = Server("-t", "1", "--log-jsonl", "--chat-template", "chatml")
        self.addCleanup(server.__exit__)
        server.post("/v1/chat/completions", HI)
        server.post("/completion", {"prompt": "\n\"x\"", "n_predict": 3, "seed": 1, "n": 2})
        server.request("GET", '/no"such')
        client = server.open_stream("/completion", {"prompt": "a", "n_predict": 2000, "ignore_eos": True})
        client.recv(100)
        client.close()
        server.wait_idle()
        server.stop(signal.SIGTERM)
        lines = [json.loads(line) for line in server.log]
        for line in lines:
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertIn("message", line)
            # What is of a request names it.
            self.assertEqual("request" in line, line["event"] not in ("note", "stopping"), line)
        by = {}
        for line in lines:
            by.setdefault(line["event"], []).append(line)
        answers = [line for line in by["answer"] if line["method"] == "POST"]
        self.assertEqual([(a["request"], a["path"], a["status"]) for a in answers][:2],
                         [(1, "/v1/chat/completions", 200), (2, "/completion", 200)])
        ends = [line for line in by["end"] if line["request"] == 2]
        self.assertEqual([(e["choice"], e["timings"]["predicted_n"], e["stop"]) for e in ends],
                         [(0, 3, "limit"), (1, 3, "limit")])
        self.assertEqual(len(by["gone"]), 1)
        self.assertEqual(len(by["stopping"]), 1)


class Metrics(cli.CliTest):
    def read(self, server):
        """Values by name and labels, and the types."""
        status, headers, body = server.request("GET", "/metrics")
        self.assertEqual(status, 200)
        values, types = {}, {}
        for line in body.decode().splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                self.assertNotIn(name, types)
                types[name] = kind
            elif not line.startswith("#"):
                found = re.fullmatch(r'([a-z_:]+)(\{[a-z]+="[^"]*"\})? (\S+)', line)
                self.assertTrue(found, line)
                family = re.sub("_(bucket|sum|count)$", "", found[1])
                self.assertIn(types.get(found[1], types.get(family)), ("counter", "gauge", "histogram"))
                values[found[1] + (found[2] or "")] = float(found[3])
        return values, types

    def test_histograms_sources_and_errors(self):
        with Server("-t", "1", "-np", "2", "--spec-type", "ngram,suffix", "--chat-template", "chatml") as server:
            body = {"prompt": "a b a b a b", "n_predict": 50, "temperature": 0, "ignore_eos": True}
            out = [server.post("/completion", {**body, "n": 2, "stream": False}), server.post("/completion", body)]
            chunks, _ = server.stream("/completion", body)
            sequences = [*out[0], out[1], chunks[-1]]
            server.error("/completion", {"prompt": 5})
            server.error("/completion", {"prompt": [0] * 5000})
            server.error("/v1/embeddings", {})
            server.request("GET", "/nothing")
            values, types = self.read(server)
            for name in ("lockstep:time_to_first_token_seconds", "lockstep:inter_token_seconds"):
                self.assertEqual(types[name], "histogram")
                buckets = [(float(re.search('le="([^"]*)"', key)[1]), value) for key, value in values.items()
                           if key.startswith(name + "_bucket")]
                self.assertEqual([b for b, _ in buckets], sorted(b for b, _ in buckets))
                self.assertEqual([v for _, v in buckets], sorted(v for _, v in buckets))
                self.assertEqual(buckets[-1], (float("inf"), values[name + "_count"]))
                self.assertGreater(values[name + "_sum"], 0)
            self.assertEqual(values["lockstep:time_to_first_token_seconds_count"], len(sequences))
            after_first = values["lockstep:inter_token_seconds_count"]
            self.assertLessEqual(after_first, sum(s["timings"]["predicted_n"] - 1 for s in sequences))
            self.assertGreater(after_first, 0)
            drafted = sum(s["timings"].get("draft_n", 0) for s in sequences)
            for kind, total in [("", drafted),
                                ("_accepted", sum(s["timings"].get("draft_n_accepted", 0) for s in sequences))]:
                by_source = {key: value for key, value in values.items()
                             if key.startswith(f"lockstep:draft_tokens{kind}_total{{source=")}
                self.assertEqual(sum(by_source.values()), total)
                self.assertEqual(set(by_source), {f'lockstep:draft_tokens{kind}_total{{source="{source}"}}'
                                                  for source in ("ngram", "suffix")})
            self.assertGreater(drafted, 0)
            for kind, count in [("invalid_request_error", 1), ("exceed_context_size_error", 1),
                                ("not_supported_error", 1), ("not_found_error", 1)]:
                self.assertEqual(values[f'lockstep:errors_total{{type="{kind}"}}'], count)
            self.assertGreater(values["lockstep:resident_bytes"], 1 << 20)
            self.assertGreater(values["lockstep:kv_bytes"], 0)


if __name__ == "__main__":
    unittest.main()
