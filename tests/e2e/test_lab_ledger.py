"""lab init, import, add, show, diff, tried, records, rejected, verify: the same tests on SQLite and PostgreSQL."""
import hashlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import cli
import postgres
from cli import BAD_FILE, BAD_USE, CHECK_FAILED, CliTest, OK, RESOURCE, run

TABLE = cli.ROOT / "tests/data/lab/gemma4-b70-runs.csv"
FULL = os.environ.get("LOCKSTEP_FULL") == "1"
SEED = int(os.environ.get("LOCKSTEP_SEED", "20261130"))


def llama_bench(i):
    """A small result that no other i has."""
    return json.dumps([{"build_commit": f"{i:08x}", "build_number": i, "cpu_info": "cpu", "gpu_info": "gpu",
                        "model_filename": "m.gguf", "model_type": "m", "n_prompt": 0, "n_gen": 128, "n_depth": 0,
                        "avg_ns": 1000000000 + i, "avg_ts": 128.0 - i / 1000, "stddev_ts": 0.1}])


class Sqlite:
    """What the tests need of a database: a place for a ledger, SQL on it, SQL without its guards; and how many
    imports are killed in --full (in under five minutes)."""
    full_kills = 1000

    @classmethod
    def start(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.number = 0

    @classmethod
    def stop(cls):
        cls.folder.cleanup()

    @classmethod
    def place(cls):
        cls.number += 1
        return f"{cls.folder.name}/ledger{cls.number}.db"

    @staticmethod
    def sql(where, text):
        db = sqlite3.connect(where)
        try:
            with db:
                rows = [[str(cell) for cell in row] for row in db.execute(text).fetchall()]
        finally:
            db.close()
        return rows

    @staticmethod
    def unguarded(where, text):
        db = sqlite3.connect(where)
        try:
            guards = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
            with db:
                for name, _ in guards:
                    db.execute(f"DROP TRIGGER {name}")
                db.execute(text)
                for _, sql in guards:
                    db.execute(sql)
        finally:
            db.close()


class Postgresql:
    full_kills = 400   # each takes three times as long: a connection, and a server that cleans up
    server = None

    @classmethod
    def start(cls):
        if postgres.binaries() is None:
            raise unittest.SkipTest("PostgreSQL's server is not installed")
        cls.server = postgres.Server().start()

    @classmethod
    def stop(cls):
        cls.server.stop()

    @classmethod
    def place(cls):
        return cls.server.database()

    @classmethod
    def sql(cls, where, text):
        return cls.server.sql(where, text)

    @classmethod
    def unguarded(cls, where, text):
        cls.server.sql(where, f"SET session_replication_role = replica; {text}")


class Cases:
    """Run for each database by the classes at the end."""

    @classmethod
    def setUpClass(cls):
        cls.db.start()
        cls.folder_object = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.folder_object.name)
        # One ledger with the table in it, which tests only read.
        try:
            cls.table = cls.db.place()
            done = run("lab", "import", TABLE, "--ledger", cls.table, "--json")
            assert done.returncode == OK, done.stderr
            cls.imported = json.loads(done.stdout)
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.folder_object.cleanup()
        cls.db.stop()

    def lab(self, command, *arguments, where=None, **options):
        return self.json("lab", command, *arguments, "--ledger", where or self.table, **options)

    def file(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def whole(self, where):
        result = self.lab("verify", where=where)
        self.assertTrue(result["whole"], result)
        self.assertEqual((result["fault_count"], result["faults"]), (0, []))
        return result

    # What goes in.

    def test_the_table(self):
        (one,) = self.imported["files"]
        self.assertEqual(one["format"], "runs-csv")
        self.assertEqual(one["artifact"], hashlib.sha256(TABLE.read_bytes()).hexdigest())
        self.assertEqual({kind: one["kinds"][kind] for kind in ("run", "row", "verdict", "claim")},
                         {"run": 221, "row": 221, "verdict": 221, "claim": 3})
        self.assertEqual((one["skipped"], one["notes"]), (0, []))
        shown = self.lab("show")
        self.assertEqual(shown["entries"], one["added"] + 2)   # the artifact, and that it was imported
        self.assertEqual(self.check("lab", "show", one["artifact"], "--raw", "--ledger", self.table).stdout,
                         TABLE.read_bytes())
        self.whole(self.table)

    def test_twice_is_said_and_changes_nothing(self):
        where = self.db.place()
        first = self.lab("import", TABLE, where=where)
        again = self.lab("import", TABLE, where=where)
        self.assertTrue(again["files"][0]["already"])
        self.assertEqual(again["head"], first["head"])
        self.assertIn(b"imported before", self.check("lab", "import", TABLE, "--ledger", where).stdout)
        renamed = self.file("renamed.csv", TABLE.read_text())
        self.assertTrue(self.lab("import", renamed, where=where)["files"][0]["already"])

    def test_own_results(self):
        where = self.db.place()
        model = ["-m", "synth:llama-tiny@q4_0,seed=5", "-t", "1"]
        result = self.file("run.json", self.check("run", *model, "-p", "abc", "-n", "8", "-s", "1", "--temp", "0",
                                                  "--json").stdout.decode())
        bench = self.file("bench.json", self.check("bench", *model, "-p", "8", "-n", "2", "-w", "1", "-r", "2",
                                                   "--json").stdout.decode())
        files = self.lab("import", result, bench, where=where)["files"]
        self.assertEqual([f["format"] for f in files], ["lockstep.run/1", "lockstep.bench/1"])
        self.assertEqual([f["kinds"]["row"] for f in files], [1, 3])
        self.whole(where)

    def test_absent_is_not_zero(self):
        # The first line of the table has no time to the first token; no line says what was cached.
        rows = self.db.sql(self.table, "SELECT type, count(*) FROM fact WHERE name = 'cached_tokens' GROUP BY type")
        self.assertEqual(rows, [["absent", "221"]])
        rows = dict(self.db.sql(self.table, "SELECT type, count(*) FROM fact WHERE name = 'ttft_ms' GROUP BY type"))
        self.assertGreater(int(rows["absent"]), 0)
        self.assertGreater(int(rows["real"]), 0)
        zero = self.db.sql(self.table, "SELECT count(*) FROM fact WHERE type = 'real' AND value = '0'")
        self.assertEqual(zero, [["0"]])

    # What comes out.

    def test_tried_finds_every_spelling(self):
        found = self.lab("tried", "p_min=0.136")["found"]
        names = {one["name"] for one in found}
        changes = {one["change"] for one in found}
        self.assertIn("MTP_P_MIN=0.136", changes)
        self.assertIn("p_min=0.136, THREADS=10", changes)
        self.assertIn("exact record threshold control, p_min=0.13600, THREADS=8", changes)
        self.assertIn("gemma4-q8-gpu3-pmin013600-th8-control-screen-20260626T060212Z", names)
        # Said by the run's name alone.
        by_name = [one for one in found if one["asked_in"] == "name"]
        self.assertIn("GGML_SYCL_PRIORITIZE_DMMV=1", {one["change"] for one in by_name})
        expected = set()
        for line in TABLE.read_text().splitlines()[1:]:
            low = line.lower()
            if any(mark in low for mark in ("p_min=0.136,", "p_min=0.13600", "pmin0136-", "pmin013600-", "pmin01360-",
                                            "p_min=0.136 ", "p_min=0.136\"")):
                expected.add(line.split(",")[1])
        self.assertEqual(names - expected, set())
        self.assertEqual(expected - names, set())
        for query in ("MTP_P_MIN=0.1360", " --spec-draft-p-min 0.136", "pmin0136", "p_min 0.13600"):
            with self.subTest(query):
                self.assertEqual(self.lab("tried", query)["found"], found)
        # Neighbours are something else.
        for name in names:
            self.assertNotRegex(name, "pmin01363|pmin01362|pmin01361|pmin0135")

    def test_tried_says_verdict_lane_and_retry(self):
        (one,) = self.lab("tried", "p_min=0.136 threads=12")["found"]
        self.assertEqual((one["verdict"], one["said"], one["lane"], one["retry"], one["provenance"]),
                         ("not_better", "valid_loss", "gemma4-q8", None, "reported"))
        text = self.check("lab", "tried", "p_min=0.136 threads=12", "--ledger", self.table).stdout.decode()
        for part in ("not_better", "valid_loss", "gemma4-q8", "none recorded"):
            self.assertIn(part, text)

    def test_tried_sets_what_was_predicted_beside_what_came(self):
        where = self.db.place()
        self.lab("init", where=where)
        # By hand: 3 % and 1 % were predicted, 0.5 % and -0.1 % came: 0.4 of 4, a tenth. The third was not measured.
        for change, predicted, effect in (("GEMV_A=1", 0.03, 0.005), ("GEMV_A=2", 0.01, -0.001), ("GEMV_A=3", 0.5, None)):
            candidate = self.lab("add", "candidate", f"change={change}", f"predicted_effect={predicted}", where=where)["id"]
            if effect is not None:
                self.lab("add", "verdict", "verdict=not_better", f"candidate={candidate}", f"effect={effect}", where=where)
        result = self.lab("tried", "gemv_a", where=where)
        self.assertEqual(len(result["found"]), 3)
        self.assertEqual(result["realised"]["attempts"], 2)
        self.assertAlmostEqual(result["realised"]["predicted"], 0.04)
        self.assertAlmostEqual(result["realised"]["measured"], 0.004)
        text = self.check("lab", "tried", "gemv_a", "--ledger", where).stdout.decode()
        self.assertIn("2; +4.00 % was predicted in all, +0.40 % came, 10 % of it", text)
        self.assertNotIn("was predicted", self.check("lab", "tried", "p_split", "--ledger", self.table).stdout.decode())

    def test_tried_by_words_and_by_key(self):
        self.assertGreater(len(self.lab("tried", "moe_selected_softmax=1")["found"]), 0)
        words = self.lab("tried", "balanced concat")["found"]
        self.assertEqual(len(words), 2)
        every = self.lab("tried", "p_split")["found"]
        self.assertEqual({one["settings"]["p_split"] for one in every}, {"0.05", "0.1"})

    def test_tried_nothing_names_the_nearest(self):
        result = self.lab("tried", "p_min=0.137")
        self.assertEqual({one["change"] for one in result["found"]}, {"MTP_P_MIN=0.137, THREADS=16"})
        result = self.lab("tried", "p_min=0.1372")
        self.assertEqual(result["found"], [])
        self.assertEqual(result["near"][0]["value"], "0.137")
        self.assertIn(b"not tried", self.check("lab", "tried", "teleport", "--ledger", self.table).stdout)

    def test_records_are_none_and_claims_three(self):
        result = self.lab("records")
        self.assertEqual(result["records"], [])
        self.assertEqual([round(claim["facts"]["value"]["value"], 3) for claim in result["claims"]],
                         [101.602, 102.031, 103.299])
        for claim in result["claims"]:
            self.assertEqual(claim["facts"]["value"]["provenance"], "reported")
        text = self.check("lab", "records", "--ledger", self.table).stdout.decode()
        self.assertIn("records: 0", text)
        self.assertIn("reported", text)

    def test_rejected_lists_the_dead_ends(self):
        ends = self.lab("rejected")["dead_ends"]
        changes = {attempt["change"] for end in ends for attempt in end["attempts"]}
        self.assertIn("MTP_N_MAX=9, direct-unroll9", changes)
        self.assertNotIn("MTP_P_MIN=0.136", changes)   # promoted under the same recipe
        self.assertEqual({a["verdict"] for end in ends for a in end["attempts"]} - {"not_better", "invalid"}, set())

    def test_show_and_diff(self):
        found = self.lab("tried", "p_min=0.136 threads=12")["found"] + self.lab("tried", "p_min=0.136 threads=16")["found"]
        a, b = found[0], found[1]
        entry = self.lab("show", a["run"][:12])
        self.assertEqual((entry["id"], entry["kind"]), (a["run"], "run"))
        self.assertEqual(entry["facts"]["identity"]["value"], None)
        self.assertIn("absent", entry["facts"]["identity"])
        differ = {d["name"]: (d["a"] and d["a"]["value"], d["b"] and d["b"]["value"])
                  for d in self.lab("diff", a["run"], b["run"])["differ"]}
        self.assertEqual(differ["setting.threads"], ("12", "16"))
        self.assertNotIn("setting.p_min", differ)
        self.assertEqual(self.lab("diff", a["run"], a["run"])["differ"], [])

    def test_diff_of_files(self):
        runs = []
        for i, flags in enumerate(([], ["--spec-type", "ngram", "-ctk", "q8_0"])):
            out = self.check("run", "-m", "synth:llama-tiny@q4_0,seed=5", "-t", "1", "-p", "abc", "-n", "4", "-s", "1",
                             "--json", *flags).stdout.decode()
            runs.append(self.file(f"diff{i}.json", out))
        differ = {d["name"] for d in self.lab("diff", *runs)["differ"]}
        self.assertLessEqual({"effective.kv.k_type", "effective.draft.source"}, differ)
        self.assertNotIn("effective.model.sha256", differ)

    # Adding by hand.

    def test_add_and_supersede(self):
        where = self.db.place()
        candidate = self.lab("add", "candidate", "change=MTP_P_MIN=0.1360, THREADS=16", "lane=gemma4-q8",
                             "retry=when engine.commit != 839a572a", where=where)
        self.assertEqual(candidate["facts"]["setting.p_min"]["value"], "0.136")
        verdict = self.lab("add", "verdict", f"candidate={candidate['id'][:10]}", "verdict=not_better",
                           "lane=gemma4-q8", "--source", "notes", where=where)
        (one,) = self.lab("tried", "threads=16", where=where)["found"]
        self.assertEqual((one["verdict"], one["retry"]), ("not_better", "when engine.commit != 839a572a"))
        self.assertFalse(self.lab("add", "verdict", f"candidate={candidate['id'][:10]}", "verdict=not_better",
                                  "lane=gemma4-q8", "--source", "notes", where=where)["added"])
        self.lab("add", "verdict", f"candidate={candidate['id'][:10]}", "verdict=better", "lane=gemma4-q8",
                 "--supersedes", verdict["id"][:10], where=where)
        (one,) = self.lab("tried", "threads=16", where=where)["found"]
        self.assertEqual(one["verdict"], "better")
        self.assertEqual(self.lab("rejected", where=where)["dead_ends"], [])
        # What was superseded stays, and says by what.
        self.assertIsNotNone(self.lab("show", verdict["id"], where=where)["superseded_by"])
        self.refused("lab", "add", "verdict", f"candidate={candidate['id'][:10]}", "verdict=fault", "--supersedes",
                     verdict["id"], "--ledger", where, says="superseded already")
        self.whole(where)

    def test_add_refuses_in_one_line(self):
        where = self.db.place()
        self.lab("init", where=where)
        for words, says in ((["mood"], "no kind to add"), (["verdict", "mood=good"], "no field of a verdict"),
                            (["row", "cached_tokens=few"], "whole number"), (["row", "cached_tokens"], "NAME=VALUE"),
                            (["verdict", "verdict=better"], "has to say: candidate"),
                            (["verdict", "candidate=abcd1234", "verdict=better"], "no entry"),
                            (["candidate"], "change or a setting"), (["artifact"], "no kind to add"),
                            (["row", "index=0", "--provenance", "verified"], "only what the lab measures"),
                            (["row", "index=0", "--provenance", "logged"], "--artifact"),
                            (["row", "index=0", "--provenance", "hearsay"], "give logged")):
            with self.subTest(words):
                self.refused("lab", "add", *words, "--ledger", where, says=says)
        self.assertEqual(self.lab("show", where=where)["entries"], 0)

    def test_reported_figures_make_no_record(self):
        rows = [one["run"] for one in self.lab("tried", "p_min=0.136 threads=12")["found"]]
        row = self.db.sql(self.table, f"SELECT o.id FROM object o JOIN fact f ON f.seq = o.seq AND f.name = 'run' "
                                      f"WHERE o.kind = 'row' AND f.value = '{rows[0]}'")[0][0]
        candidate = self.lab("show", rows[0])["facts"]["candidate"]["value"]
        log = self.file("proof.log", "figures")
        where = self.table
        before = self.lab("show")["head"]
        # A record's figures may be logged and its identity there: the rows under it are still reported.
        words = [f"row={row}", f"identity={candidate}", f"candidate={candidate}", f"control={candidate}",
                 "metric=decode_tok_s", "unit=tok/s", "level=103.3", "effect=0.01", "selected=103.3", "confirmed=102",
                 "expected=101", f'selection_rows=["{row}"]', f'confirmation_rows=["{row}"]']
        self.refused("lab", "add", "record", *words, "--provenance", "logged", "--artifact", log, "--ledger", where,
                     code=CHECK_FAILED, says=["no record", "is reported", "selected it and confirmed it",
                                              "identity lacks"])
        self.assertEqual(self.lab("show")["head"], before)

    def test_a_record_that_stands(self):
        where = self.db.place()
        logged = ["--provenance", "logged", "--artifact", self.file("server.log", "figures")]
        keys = ("model.sha256", "engine.name", "engine.binary_sha256", "device", "threads", "kv.k_type", "kv.v_type",
                "sampling", "context")
        add = lambda *words: self.lab("add", *words, *logged, where=where)["id"]
        identity = add("identity", "effective.draft.source=", *(f"effective.{key}=x" for key in keys))
        rows = [add("row", f"identity={identity}", f"decode_tok_s={rate}") for rate in (100, 101)]
        candidate = add("candidate", "change=THREADS=16")
        words = ["record", f"row={rows[1]}", f"identity={identity}", f"candidate={candidate}", f"control={rows[0]}",
                 "metric=decode_tok_s", "unit=tok/s", "level=101", "effect=0.01", "selected=101", "confirmed=100.5",
                 "expected=100.4", f'selection_rows=["{rows[0][:12]}"]', f'confirmation_rows=["{rows[1][:12]}"]']
        add(*words)
        (record,) = self.lab("records", where=where)["records"]
        self.assertEqual(record["faults"], [])
        self.assertEqual(record["facts"]["confirmation_rows"]["value"], [rows[1]])
        self.assertIn("records: 1", self.check("lab", "records", "--ledger", where).stdout.decode())
        # The same with one thing missing is refused.
        lacking = self.lab("add", "identity", "effective.draft.source=", *(f"effective.{key}=x" for key in keys[1:]),
                           *logged, where=where)["id"]
        words[2] = f"identity={lacking}"
        self.refused("lab", "add", *words, *logged, "--ledger", where, code=CHECK_FAILED, says="lacks model.sha256")
        self.whole(where)

    # Tampering.

    def test_the_database_itself_refuses_edits(self):
        for text in ("UPDATE fact SET value = '999' WHERE seq = 3", "DELETE FROM object WHERE seq = 3",
                     "UPDATE head SET entries = 1", "DELETE FROM artifact_part", "DELETE FROM head"):
            with self.subTest(text), self.assertRaises((sqlite3.Error, RuntimeError)) as caught:
                self.db.sql(self.table, text)
            self.assertIn("append-only", str(caught.exception))
        self.whole(self.table)

    EDITS = [   # SQL, the entry and field that verify has to name
        ("UPDATE fact SET value = '999.9' WHERE seq = 4 AND name = 'decode_tok_s'", 4, "decode_tok_s"),
        ("UPDATE fact SET provenance = 'verified' WHERE seq = 4 AND name = 'decode_tok_s'", 4, "decode_tok_s"),
        ("UPDATE fact SET source = 'me' WHERE seq = 4 AND name = 'decode_tok_s'", 4, "decode_tok_s"),
        ("UPDATE fact SET type = 'text' WHERE seq = 4 AND name = 'decode_tok_s'", 4, "decode_tok_s"),
        ("UPDATE fact SET name = 'tok_s' WHERE seq = 4 AND name = 'decode_tok_s'", 4, "tok_s"),
        ("UPDATE fact SET type = 'integer', value = '0' WHERE seq = 4 AND name = 'repetitions'", 4, "repetitions"),
        ("UPDATE fact SET sha256 = 'x' WHERE seq = 4 AND name = 'decode_tok_s'", 4, "decode_tok_s"),
        ("UPDATE fact SET ordinal = 99 WHERE seq = 4 AND ordinal = 2", 4, "fact.ordinal"),
        ("DELETE FROM fact WHERE seq = 4 AND name = 'decode_tok_s'", 4, "fact.ordinal"),
        ("INSERT INTO fact VALUES (4, 99, 'note', 'text', 'x', 'verified', '', 'x')", 4, "note"),
        ("UPDATE object SET kind = 'claim' WHERE seq = 4", 4, "kind"),
        ("UPDATE object SET supersedes = 'x' WHERE seq = 4", 4, "kind"),
        ("UPDATE object SET created_at = '2020-01-01T00:00:00Z' WHERE seq = 4", 4, "created_at"),
        ("UPDATE object SET id = 'x' WHERE seq = 4", 4, "id"),
        ("UPDATE object SET prev = 'x' WHERE seq = 4", 4, "prev"),
        ("UPDATE object SET hash = 'x' WHERE seq = 4", 4, "hash"),
        ("DELETE FROM object WHERE seq = 4", 5, "seq"),
        ("DELETE FROM object WHERE seq = (SELECT max(seq) FROM object)", None, "head.entries"),
        ("UPDATE head SET entries = entries + 1", None, "head.entries"),
        ("UPDATE head SET hash = 'x'", None, "head.hash"),
        ("DELETE FROM head", None, "head"),
        ("UPDATE artifact SET bytes = bytes + 1", 1, "bytes"),
        ("UPDATE artifact SET sha256 = 'x'", 1, "artifact"),
        ("DELETE FROM artifact_part", 1, "artifact_part"),
        ("DELETE FROM artifact", 1, "artifact"),
        ("DELETE FROM migration WHERE version = 1", None, "migration.version"),
    ]

    def test_an_edit_by_sql_is_reported(self):
        source = self.file("bench.json", llama_bench(1))
        for text, entry, field in self.EDITS:
            with self.subTest(text):
                where = self.db.place()
                self.lab("import", source, where=where)
                self.whole(where)
                self.db.unguarded(where, text)
                result = self.lab("verify", where=where, code=CHECK_FAILED)
                self.assertFalse(result["whole"])
                self.assertIn((entry, field), {(f["entry"], f["field"]) for f in result["faults"]}, result["faults"])

    def test_a_head_beyond_the_last_entry_stops_whoever_reads(self):
        where = self.db.place()
        self.lab("import", self.file("bench.json", llama_bench(1)), where=where)
        self.db.unguarded(where, "UPDATE head SET entries = 9223372036854775807")
        for words in (["show"], ["tried", "p_min=0.1"], ["records"], ["rejected"]):
            with self.subTest(words):
                self.refused("lab", *words, "--ledger", where, code=BAD_FILE, says="lockstep lab verify")

    def test_a_chain_written_anew_is_found_by_its_head(self):
        where = self.db.place()
        source = self.file("bench.json", llama_bench(1))
        self.lab("import", source, where=where)
        head = self.whole(where)["head"]
        self.check("lab", "verify", "--head", head, "--ledger", where)
        other = self.db.place()
        self.lab("import", self.file("other.json", llama_bench(2)), where=other)
        self.whole(other)
        done = self.check("lab", "verify", "--head", head, "--ledger", other, code=CHECK_FAILED)
        self.assertIn(b"written anew", done.stdout)
        self.refused("lab", "verify", "--head", "5", "--ledger", where, says="--head 5")

    # Writers that die, and writers beside each other.

    def kill_imports(self, count):
        """Imports of small files, each killed after a random while; what was committed must stay."""
        where = self.db.place()
        rng = random.Random(SEED)
        self.lab("init", where=where)
        files = [self.file(f"kill{i}.json", llama_bench(i)) for i in range(count)]
        begin = time.monotonic()
        self.lab("import", files[0], where=where)
        usual = time.monotonic() - begin
        committed, killed, entries = {hashlib.sha256(files[0].read_bytes()).hexdigest()}, 0, 0
        for i, path in enumerate(files[1:], 1):
            process = subprocess.Popen([str(cli.BINARY), "lab", "import", str(path), "--ledger", where],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.clean_environment())
            time.sleep(rng.random() * usual * 1.3)
            process.send_signal(signal.SIGKILL)
            out, err = process.communicate()
            killed += process.returncode == -signal.SIGKILL
            # About as many die as live, however busy the machine is.
            usual *= 1.07 if process.returncode == -signal.SIGKILL else 0.93
            sha = hashlib.sha256(path.read_bytes()).hexdigest()
            if process.returncode == OK or b"objects" in out:
                committed.add(sha)   # it was said
            else:
                self.assertEqual(process.returncode, -signal.SIGKILL, err)
            # Readable at once, and never shorter.
            now = int(self.db.sql(where, "SELECT entries FROM head")[0][0])
            self.assertGreaterEqual(now, entries)
            entries = now
            if i % 100 == 0:
                self.whole(where)
        there = {row[0] for row in self.db.sql(where, "SELECT sha256 FROM artifact")}
        self.assertEqual(committed - there, set())
        # Each import is there whole or not at all.
        result = self.whole(where)
        counts = self.lab("show", where=where)["kinds"]
        self.assertEqual({counts["import"], counts["row"], counts["run"], counts["artifact"]}, {len(there)})
        self.assertEqual(result["entries"], 5 * len(there))
        # A killed import starts again where it was.
        again = self.lab("import", *files, where=where)
        self.assertEqual({f["already"] for f in again["files"][:1]}, {True})
        self.whole(where)
        self.assertEqual(self.lab("show", where=where)["kinds"]["import"], count)
        return killed, len(there)

    def test_killed_writers_lose_nothing(self):
        count = self.db.full_kills if FULL else 60
        killed, there = self.kill_imports(count)
        print(f"\n{type(self).__name__}: {count} imports, {killed} killed, {there} committed, none lost", flush=True)
        # The negative control: kills that all came too late would show nothing.
        self.assertGreater(killed, count // 10)
        self.assertLess(there, count)

    def test_two_writers_at_once(self):
        where = self.db.place()   # which neither has made yet
        each = 100 if FULL else 15
        files = [[self.file(f"w{w}-{i}.json", llama_bench(1000 * (w + 1) + i)) for i in range(each)] for w in (0, 1, 2)]
        writers = [subprocess.Popen([str(cli.BINARY), "lab", "import", *map(str, mine), "--ledger", where, "--json"],
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.clean_environment())
                   for mine in files[:2]]
        # The third imports what the first does: each file is written once.
        writers.append(subprocess.Popen([str(cli.BINARY), "lab", "import", *map(str, files[0]), "--ledger", where, "--json"],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.clean_environment()))
        results = []
        for writer in writers:
            out, err = writer.communicate(timeout=600)
            self.assertEqual(writer.returncode, OK, err)
            results.append(json.loads(out))
        added = [sum(not f["already"] for f in result["files"]) for result in results]
        self.assertEqual(added[1], each)
        self.assertEqual(added[0] + added[2], each)
        self.assertEqual(self.whole(where)["entries"], 5 * 2 * each)

    # Bad places.

    def test_bad_input_is_one_line(self):
        where = self.db.place()
        for name, data, says in (("empty", b"", "empty"), ("binary", b"\x00\x01\x02" * 50, "binary"),
                                 ("utf16", "run,change".encode("utf-16"), "UTF-16"), ("words", b"hello", "neither JSON nor CSV"),
                                 ("cut.json", llama_bench(1)[:60].encode(), "ends in the middle"),
                                 ("long", b"x" * 10_000_000, "neither"), ("other.csv", b"a,b\n1,2\n", "without the column run"),
                                 ("deep.json", b"[" * 100_000, "ends in the middle")):
            path = self.folder / name
            path.write_bytes(data)
            with self.subTest(name):
                self.refused("lab", "import", path, "--ledger", where, code=BAD_FILE, says=says)
        self.refused("lab", "import", self.folder / "none", "--ledger", where, code=BAD_FILE, says="No such file")
        self.refused("lab", "import", self.folder, "--ledger", where, code=BAD_FILE, says="directory")
        self.refused("lab", "import", "--ledger", where, says="no file")
        self.assertEqual(self.lab("show", where=where)["entries"], 0)
        # The good part of a file is used, the rest counted.
        path = self.file("half.csv", "run,change,fresh_tok_s,verdict\na-gpu0-b,X=1,5,valid_loss\ncut,short\n")
        one = self.lab("import", path, where=where)["files"][0]
        self.assertEqual((one["skipped"], one["kinds"]["row"]), (1, 1))


class Help(CliTest):
    def test_every_command_has_help_with_an_example(self):
        listed = self.check("lab", "--help").stdout.decode()
        for command in ("lint", "init", "import", "add", "show", "diff", "tried", "records", "rejected", "verify"):
            with self.subTest(command):
                self.assertIn(f"lab {command}", listed)
                text = self.check("lab", command, "--help").stdout.decode()
                self.assertIn("Example:", text)
                self.assertIn(f"lockstep lab {command}", text)
                self.assertIn("--ledger", text)


class OnSqlite(Cases, CliTest):
    db = Sqlite

    def test_places(self):
        self.refused("lab", "show", "--ledger", self.folder / "none.db", says="no ledger here")
        self.assertFalse((self.folder / "none.db").exists())
        self.refused("lab", "verify", "--ledger", TABLE, code=BAD_FILE, says="not a database")
        self.refused("lab", "import", TABLE, "--ledger", self.folder, says="a directory")
        self.refused("lab", "show", "--ledger", "", says="--ledger")
        foreign = self.folder / "foreign.db"
        Sqlite.sql(foreign, "CREATE TABLE recipes (id INTEGER)")
        self.refused("lab", "import", TABLE, "--ledger", foreign, code=BAD_FILE, says="another program")
        self.refused("lab", "show", "--ledger", "postgresql://nobody:secret@/nowhere?host=/nonexistent", code=RESOURCE,
                     says="no connection")
        done = run("lab", "show", "--ledger", "postgresql://nobody:secret@/nowhere?host=/nonexistent")
        self.assertNotIn(b"secret", done.stderr)

    def test_the_default_place_and_the_variable(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([str(cli.BINARY), "lab", "init"], cwd=folder, capture_output=True,
                                  env=cli.clean_environment())
            self.assertEqual(done.returncode, OK, done.stderr)
            self.assertTrue((Path(folder) / ".lockstep/ledger.db").exists())
            other = Path(folder) / "other.db"
            self.check("lab", "init", env={"LOCKSTEP_LEDGER": str(other)})
            self.assertTrue(other.exists())

    def test_the_chain_by_hand(self):
        """What docs/lab-ledger.md says, done with sqlite3 and SHA-256 alone."""
        db = sqlite3.connect(self.table)
        sha = lambda text: hashlib.sha256(text.encode()).hexdigest()
        prev = "0" * 64
        for seq, id_, kind, supersedes, created, stored_prev, stored in db.execute("SELECT * FROM object ORDER BY seq"):
            digests = [sha("\n".join(f)) for f in db.execute(
                "SELECT name, type, provenance, source, value FROM fact WHERE seq = ? ORDER BY ordinal", (seq,))]
            self.assertEqual(id_, sha(f"{kind}\n{supersedes}\n" + "".join(d + "\n" for d in digests)))
            self.assertEqual(stored_prev, prev)
            prev = sha(f"{prev}\n{seq}\n{id_}\n{created}\n")
            self.assertEqual(stored, prev)
        self.assertEqual(prev, self.lab("show")["head"])
        for artifact, size in db.execute("SELECT sha256, bytes FROM artifact"):
            content = b"".join(c for (c,) in db.execute(
                "SELECT content FROM artifact_part WHERE sha256 = ? ORDER BY part", (artifact,)))
            self.assertEqual((hashlib.sha256(content).hexdigest(), len(content)), (artifact, size))
        db.close()

    def test_a_flipped_byte_anywhere_is_reported(self):
        where = self.table
        if not FULL:   # a smaller one of the same kinds
            where = self.db.place()
            lines = TABLE.read_text().splitlines(keepends=True)
            self.lab("import", self.file("part.csv", "".join(lines[:12] + lines[60:66])),
                     self.file("bench.json", llama_bench(1)), where=where)
        source = Path(where).read_bytes()
        unused = unused_map(source)
        logical = dump(where)
        rng = random.Random(SEED)
        count = 5000 if FULL else 250
        in_use = reported = silent = 0
        path = self.folder / "flipped.db"
        for _ in range(count):
            at = rng.randrange(len(source))
            in_use += not unused[at]
            flipped = bytearray(source)
            flipped[at] ^= 1 << rng.randrange(8)
            path.write_bytes(flipped)
            done = run("lab", "verify", "--ledger", path)
            self.assertIn(done.returncode, (OK, CHECK_FAILED, BAD_FILE), (at, done.stderr))
            if done.returncode != OK:
                reported += 1
                continue
            silent += 1
            # Then it is a byte that nothing reads: by the file format, and what is read is what was.
            self.assertTrue(unused[at], f"byte {at} was flipped, is used, and verify says nothing")
            self.assertEqual(dump(path), logical, at)
        print(f"\n{count} flipped bits in {len(source)} bytes, {in_use} of them in bytes that are used: {reported} "
              f"reported, {silent} in bytes that nothing reads ({sum(unused)} of the file)", flush=True)
        self.assertGreaterEqual(reported, in_use)
        self.assertGreater(in_use, count // 2)


def varint(data, at):
    """SQLite's variable-length integer: value and length."""
    value = 0
    for i in range(8):
        value = value << 7 | data[at + i] & 0x7F
        if not data[at + i] & 0x80:
            return value, i + 1
    return value << 8 | data[at + 8], 9


def unused_map(data):
    """Of every byte of an SQLite file whether nothing reads it (https://sqlite.org/fileformat2.html): free pages,
    the gaps in b-tree pages, the tail of a last overflow page, header fields without an effect."""
    page_size = int.from_bytes(data[16:18], "big")
    if page_size == 1:
        page_size = 65536
    used = bytearray(len(data))

    def mark(begin, length):
        used[begin:begin + length] = b"\x01" * length

    # The header: all but the schema cookie (40), the cache size (48) and the version of the writer (96).
    mark(0, 40), mark(44, 4), mark(52, 44)
    freelist, n = int.from_bytes(data[32:36], "big"), 0
    while freelist:
        base = (freelist - 1) * page_size
        leaves = int.from_bytes(data[base + 4:base + 8], "big")
        mark(base, 8 + 4 * leaves)
        freelist = int.from_bytes(data[base:base + 4], "big")

    def overflow(page, left):
        while page:
            base = (page - 1) * page_size
            take = min(left, page_size - 4)
            mark(base, 4 + take)
            left -= take
            page = int.from_bytes(data[base:base + 4], "big")

    def local_size(payload, leaf_table):
        largest = page_size - 35 if leaf_table else (page_size - 12) * 64 // 255 - 23
        if payload <= largest:
            return payload
        least = (page_size - 12) * 32 // 255 - 23
        k = least + (payload - least) % (page_size - 4)
        return k if k <= largest else least

    def tree(page):
        base = (page - 1) * page_size
        head = base + (100 if page == 1 else 0)
        kind = data[head]
        cells = int.from_bytes(data[head + 3:head + 5], "big")
        interior = kind in (2, 5)
        size = 12 if interior else 8
        mark(head, size + 2 * cells)
        block = int.from_bytes(data[head + 1:head + 3], "big")
        while block:   # free blocks: their own headers alone are read
            mark(base + block, 4)
            block = int.from_bytes(data[base + block:base + block + 2], "big")
        for i in range(cells):
            at = cell = base + int.from_bytes(data[head + size + 2 * i:head + size + 2 * i + 2], "big")
            if interior:
                tree(int.from_bytes(data[at:at + 4], "big"))
                at += 4
            if kind == 5:
                at += varint(data, at)[1]
                mark(cell, at - cell)
                continue
            payload, length = varint(data, at)
            at += length
            if kind == 13:
                at += varint(data, at)[1]
            local = local_size(payload, kind == 13)
            mark(cell, at - cell + local)
            if local < payload:
                mark(at + local, 4)
                overflow(int.from_bytes(data[at + local:at + local + 4], "big"), payload - local)
        if interior:
            tree(int.from_bytes(data[head + 8:head + 12], "big"))

    tree(1)
    db = sqlite3.connect(":memory:")
    db.deserialize(bytes(data))
    for (root,) in db.execute("SELECT rootpage FROM sqlite_master WHERE rootpage > 0").fetchall():
        tree(root)
    db.close()
    return [not u for u in used]


def dump(path):
    """All that a reader of the database sees, with types."""
    db = sqlite3.connect(path)
    out = [db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name").fetchall()]
    for table in ("migration", "artifact", "artifact_part", "object", "fact", "head"):
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        select = ", ".join(f"{c}, typeof({c})" for c in columns)
        out.append(db.execute(f"SELECT {select} FROM {table} ORDER BY {', '.join(columns)}").fetchall())
    db.close()
    return out


class OnPostgresql(Cases, CliTest):
    db = Postgresql

    def test_a_changed_byte_of_an_artifact_is_reported(self):
        where = self.db.place()
        self.lab("import", self.file("bench.json", llama_bench(1)), where=where)
        self.db.unguarded(where, "UPDATE artifact_part SET content = set_byte(content, 5, get_byte(content, 5) # 1)")
        faults = self.lab("verify", where=where, code=CHECK_FAILED)["faults"]
        self.assertEqual([(f["entry"], f["field"]) for f in faults], [(1, "content")])

    def test_guards_that_are_switched_off_are_reported(self):
        where = self.db.place()
        self.lab("init", where=where)
        self.db.sql(where, "ALTER TABLE fact DISABLE TRIGGER fact_append_only")
        faults = self.lab("verify", where=where, code=CHECK_FAILED)["faults"]
        self.assertIn("trigger fact_append_only", faults[0]["text"])

    def test_an_empty_database_is_no_ledger_yet(self):
        self.refused("lab", "show", "--ledger", self.db.place(), says="no ledger in it yet")


if __name__ == "__main__":
    unittest.main()
