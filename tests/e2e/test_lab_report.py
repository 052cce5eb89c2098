"""lab report: the command, and the page as headless Chromium shows it."""
import base64
import functools
import http.server
import json
import pathlib
import sys
import tempfile
import threading
import unittest

import cli
from cli import BAD_FILE, CliTest

DATA = cli.ROOT / "tests/data/lab"
TABLE = DATA / "gemma4-b70-runs.csv"
LOG = DATA / "logs/draft7-lv4.log"
REPORTED = "98.617,101.428,101.482,101.602,103.299"
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


class Files(CliTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def log_json(self):
        path = self.folder / "log.json"
        path.write_bytes(self.check("lab", "log", LOG, "--json").stdout)
        return path


class Report(Files):
    def test_every_kind_of_input_has_its_plots(self):
        out = self.json("lab", "report", DATA / "walk/ab.csv", TABLE, self.log_json(), "--reported", REPORTED)
        self.assertEqual(out["schema"], "lockstep.lab.report/1")
        kinds = [s["plot"]["kind"] for s in out["sections"] if s["plot"]]
        self.assertEqual(sorted(set(kinds)), ["effects", "ladder", "positions", "series"])
        self.assertEqual([s["kind"] for s in out["sources"]], ["runs, CSV", "table of runs", "lockstep.lab.log/1"])
        verdict = next(s for s in out["sections"] if s["heading"] == "Effects against the control")
        judged = self.json("lab", "ab", DATA / "walk/ab.csv")
        effect = verdict["plot"]["effects"][0]
        self.assertEqual(effect["verdict"], judged["verdict"])
        self.assertAlmostEqual(effect["percent"], judged["effect"]["rate_percent"], places=9)
        self.assertEqual([effect["low"], effect["high"]], judged["effect"]["interval_percent"])

    def test_the_ladder_is_that_of_lab_noise(self):
        noise = self.json("lab", "noise", TABLE, "--reported", REPORTED)["table"]
        page = self.json("lab", "report", TABLE, "--reported", REPORTED)
        for ladder in noise["ladders"]:
            section = next(s for s in page["sections"] if ladder["source"] in s["heading"])
            self.assertEqual([r["value"] for r in section["plot"]["rungs"]], ladder["values"])
            self.assertAlmostEqual(2 * section["plot"]["half_width"], noise["difference_beyond_noise"]["tok_s"], places=9)
            self.assertEqual([row[3] == "more than noise" for row in section["tables"][0]["rows"]],
                             [step["more_than_noise"] for step in ladder["steps"]])

    def test_positions_are_those_of_the_log(self):
        log = self.json("lab", "log", LOG)
        page = self.json("lab", "report", self.log_json())
        self.assertEqual(page["sections"][0]["plot"]["traces"][0]["shares"], log["totals"]["draft"]["per_position"])

    def test_the_ledger(self):
        ledger = self.folder / "ledger.db"
        self.check("lab", "import", "--ledger", ledger, TABLE, self.log_json())
        self.check("lab", "add", "claim", "--ledger", ledger, "metric=decode_tok_s", "value=120.5", "lane=other",
                   "started_at=2026-06-27", f"name={HOSTILE}")
        out = self.json("lab", "report", "--ledger", ledger)
        headings = " ".join(s["heading"] for s in out["sections"])
        for part in ("claimed in other", "promoted in the table", "named control", "position"):
            self.assertIn(part, headings)
        self.assertIn("4 claims", out["findings"][0])
        page = self.check("lab", "report", "--ledger", ledger, "--html", self.folder / "page.html")
        self.assertEqual(page.stdout, b"")
        self.assertNotIn(HOSTILE.encode(), (self.folder / "page.html").read_bytes())

    def test_markdown_is_printed_or_written(self):
        printed = self.check("lab", "report", TABLE, "--title", "A *title*").stdout
        self.assertTrue(printed.startswith(b"# A \\*title\\*\n"), printed[:80])
        self.assertIn(b"can't be told from noise", printed)
        self.check("lab", "report", TABLE, "--title", "A *title*", "--md", self.folder / "r.md")
        self.assertEqual((self.folder / "r.md").read_bytes(), printed)

    def test_refusals(self):
        bad = self.folder / "bad"
        for content, says in ((b"", "bad"), (b"{}", "without a schema"), (b'{"schema":"lockstep.run/1"}', "lockstep.run/1"),
                              (b"\xff\xfea\x00b\x00", "UTF-16"), (b"x,y\n1,2\n", "bad")):
            bad.write_bytes(content)
            self.refused("lab", "report", bad, code=BAD_FILE, says=says)
        self.refused("lab", "report", self.folder / "none", code=BAD_FILE, says="none")
        self.refused("lab", "report", TABLE, "--reported", "1,x", says="--reported")
        self.refused("lab", "report", DATA / "walk/ab.csv", "--reported", "1,2", says="table of runs")
        self.refused("lab", "report", "--ledger", self.folder / "none.db", says="none.db")
        self.refused("lab", "report", TABLE, "--html", self.folder / "no/such.html", code=cli.RESOURCE, says="such.html")
        empty = self.folder / "empty.db"
        self.check("lab", "init", "--ledger", empty)
        self.refused("lab", "report", "--ledger", empty, says="lab import")

    def test_no_output_takes_the_place_of_what_is_read(self):
        table, ledger = self.folder / "ab.csv", self.folder / "l.db"
        table.write_bytes(TABLE.read_bytes())
        self.check("lab", "import", TABLE, "--ledger", ledger)
        kept = table.read_bytes(), ledger.read_bytes()
        again = self.folder / "x" / ".." / "ab.csv"
        (self.folder / "x").mkdir()
        (self.folder / "link.csv").hardlink_to(table)
        for arguments, says in [((table, "--html", table), "--html"), ((table, "--md", again), "--md"),
                                ((table, "--md", self.folder / "link.csv"), "--md"), ((table, "--html", ledger), "database"),
                                (("--ledger", ledger, "--html", ledger), "--html"),
                                ((table, "--html", self.folder / "o", "--md", self.folder / "x" / ".." / "o"), "too"),
                                ((table, "--html", ""), "empty")]:
            with self.subTest(arguments):
                self.refused("lab", "report", *arguments, says=says)
                self.assertEqual((table.read_bytes(), ledger.read_bytes()), kept)
        self.assertFalse((self.folder / "o").exists())

    def test_help_names_the_inputs_and_has_an_example(self):
        text = self.check("lab", "report", "--help").stdout.decode()
        for part in ("lockstep.lab.runs/1", "lab log --json", "fresh_tok_s", "ledger", "Example"):
            self.assertIn(part, text)

    def test_fields_are_documented(self):
        text = (cli.ROOT / "docs/lab-report.md").read_text()
        page = self.json("lab", "report", DATA / "walk/ab.csv", TABLE, self.log_json(), "--reported", REPORTED)

        def names(value):
            if isinstance(value, dict):
                for key, inner in value.items():
                    yield key
                    yield from names(inner)
            elif isinstance(value, list):
                for inner in value:
                    yield from names(inner)
        for name in set(names(page)) - {"schema"}:
            self.assertIn(f"`{name}`", text)


class Silent(http.server.SimpleHTTPRequestHandler):
    asked = []

    def do_GET(self):
        Silent.asked.append(self.path)
        super().do_GET()

    def log_message(self, *arguments):
        pass


class Browser(Files):
    """Chromium through its driver, both Debian's (scripts/test.sh installs them)."""

    @classmethod
    def setUpClass(cls):
        # python3-selenium is Debian's; a virtual environment doesn't look there by itself.
        sys.path.append("/usr/lib/python3/dist-packages")
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                         "--window-size=1200,900", "--force-device-scale-factor=1"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        cls.driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
        cls.driver.set_page_load_timeout(120)

    @classmethod
    def tearDownClass(cls):
        cls.driver.quit()

    def open(self, path):
        self.driver.get(path.as_uri())
        return [entry for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def canvases(self):
        """Of each canvas its width and height on the page and how many of its pixels are drawn."""
        return self.driver.execute_script("""
            return [...document.querySelectorAll('canvas')].map((c) => {
              const box = c.getBoundingClientRect();
              const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
              let drawn = 0;
              for (let i = 3; i < data.length; i += 4) drawn += data[i] > 0;
              return [box.width, box.height, drawn];
            });""")

    def page(self, *arguments):
        path = self.folder / "page.html"
        self.check("lab", "report", *arguments, "--html", path)
        return path

    def full_page(self):
        return self.page(DATA / "walk/ab.csv", TABLE, self.log_json(), "--reported", REPORTED)

    def colour_scheme(self, value):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                    {"features": [{"name": "prefers-color-scheme", "value": value}]})

    def test_no_errors_and_every_plot_is_drawn(self):
        path = self.full_page()
        self.assertEqual(self.open(path), [])
        expected = sum(1 for s in self.json("lab", "report", DATA / "walk/ab.csv", TABLE, self.log_json(), "--reported",
                                            REPORTED)["sections"] if s["plot"])
        drawn = self.canvases()
        self.assertEqual(len(drawn), expected)
        self.assertGreaterEqual(expected, 6)
        for width, height, pixels in drawn:
            self.assertGreater(width, 300)
            self.assertGreater(height, 80)
            self.assertGreater(pixels, 1500)

    def test_an_error_of_the_script_is_seen(self):
        """The control of the test above: a figure that can't be drawn makes an error and an empty canvas."""
        path = self.full_page()
        text = path.read_text()
        broken = text.replace('{"kind":"effects"', '{"kind":"nothing"', 1)
        self.assertNotEqual(text, broken)
        path.write_text(broken)
        self.assertNotEqual(self.open(path), [])
        self.assertEqual(min(pixels for _, _, pixels in self.canvases()), 0)

    def test_dark_and_print(self):
        path = self.full_page()
        self.addCleanup(self.colour_scheme, "light")
        paper = {}
        for scheme in ("light", "dark"):
            self.colour_scheme(scheme)
            self.assertEqual(self.open(path), [])
            paper[scheme] = self.driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        self.assertEqual(paper["light"], "rgb(255, 255, 255)")
        self.assertEqual(paper["dark"], "rgb(18, 22, 27)")
        # Printed from dark: the plots turn to the colours of paper, and back.
        before = self.driver.execute_script("dispatchEvent(new Event('beforeprint'));"
                                            "return getComputedStyle(document.body).backgroundColor")
        self.assertEqual(before, "rgb(255, 255, 255)")
        self.assertGreater(min(pixels for _, _, pixels in self.canvases()), 1500)
        after = self.driver.execute_script("dispatchEvent(new Event('afterprint'));"
                                           "return getComputedStyle(document.body).backgroundColor")
        self.assertEqual(after, "rgb(18, 22, 27)")
        pdf = base64.b64decode(self.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
        self.assertTrue(pdf.startswith(b"%PDF"))
        self.assertGreater(len(pdf), 20_000)

    def test_hostile_text_is_shown_and_not_run(self):
        row = {"prompt": HOSTILE, "decode_tok_s": 100.0}
        runs = {"schema": "lockstep.lab.runs/1", "arm": HOSTILE, "blocks": [
            {"block": f"{i} {HOSTILE}", "starts": [{"start": f"{i} {HOSTILE}\x1b[31m", "rows": [dict(row, decode_tok_s=100 + i % 3)]}]}
            for i in range(12)]}
        source = self.folder / "<b>&'runs.json"
        source.write_text(json.dumps(runs))
        path = self.page(source, "--title", HOSTILE)
        self.assertEqual(self.open(path), [])
        self.assertEqual(self.driver.title, HOSTILE)
        self.assertEqual(self.driver.execute_script("return document.querySelectorAll('img').length"), 0)
        self.assertIn(HOSTILE, self.driver.execute_script("return document.querySelector('main').textContent"))
        self.assertGreater(self.canvases()[0][2], 1500)

    def test_the_policy_stops_a_script_that_got_in(self):
        """The second wall, on a page whose first one was torn down by hand."""
        path = self.full_page()
        path.write_text(path.read_text().replace("<main>", "<main><script>document.title='owned'</script>", 1))
        said = self.open(path)
        self.assertNotEqual(self.driver.title, "owned")
        self.assertTrue(any("Content Security Policy" in entry["message"] for entry in said), said)

    def test_nothing_is_fetched(self):
        self.full_page()
        handler = functools.partial(Silent, directory=str(self.folder))
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            Silent.asked.clear()
            self.driver.get(f"http://127.0.0.1:{server.server_port}/page.html")
            drawn = self.canvases()
            server.shutdown()
        self.assertGreater(len(drawn), 5)
        self.assertEqual([path for path in Silent.asked if path != "/favicon.ico"], ["/page.html"])


if __name__ == "__main__":
    unittest.main()
