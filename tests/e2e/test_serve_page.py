"""The chat page as headless Chromium shows it: tokens arrive, colours add up, stop stops."""
import os
import pathlib
import sys
import time
import unittest

import cli
from serving import Server

ORIGINS = ("accepted", "corrected", "plain")


@unittest.skipUnless(cli.SMOLLM2.exists(), "no models; scripts/fetch_models.sh")
class Page(cli.CliTest):
    """Chromium through its driver, both Debian's (scripts/test.sh installs them)."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server("-t", "2", "-np", "2", "-c", "4096", "--spec-type", "suffix", "--alias", "SmolLM2-135M",
                            model=cli.SMOLLM2)
        cls.addClassCleanup(cls.server.__exit__)
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
        cls.addClassCleanup(cls.driver.quit)
        cls.driver.set_page_load_timeout(120)

    def setUp(self):
        self.driver.get(f"http://127.0.0.1:{self.server.port}/")
        self.driver.execute_script("localStorage.clear();")
        self.driver.refresh()
        self.wait(lambda: "SmolLM2-135M" in self.text("#model"))
        self.driver.get_log("browser")  # what came before is not this test's

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def text(self, selector):
        return self.find(selector).text

    def wait(self, true, seconds=120):
        end = time.monotonic() + seconds
        while not true():
            if time.monotonic() > end:
                raise AssertionError(f"nothing came of it; {self.text('body')[-500:]}")
            time.sleep(0.05)

    def set(self, **settings):
        for name, value in settings.items():
            self.driver.execute_script(
                "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
                "e.dispatchEvent(new Event('change'));", name, str(value))

    def ask(self, message):
        self.find("#input").send_keys(message)
        self.find("#send").click()

    def idle(self):
        return self.find("#send").is_displayed()

    def shown(self):
        """Of the last answer: its text, and how many tokens have each colour."""
        return self.driver.execute_script("""
            const spans = [...[...document.querySelectorAll('#log .answer')].pop().querySelectorAll('.token')];
            const counts = {};
            for (const origin of arguments[0]) counts[origin] = spans.filter((s) => s.classList.contains(origin)).length;
            return {text: spans.map((s) => s.textContent).join(''), counts};""", ORIGINS)

    def figures(self):
        return {origin: int(self.text("#count-" + origin)) for origin in ORIGINS}

    def counters(self):
        body = self.server.request("GET", "/metrics")[2].decode()
        return dict(line.rsplit(" ", 1) for line in body.splitlines() if not line.startswith("#"))

    def errors(self):
        return [e for e in self.driver.get_log("browser") if e["level"] in ("SEVERE", "WARNING")]

    def test_an_answer_and_its_colours(self):
        before = self.counters()
        question = "Count: one two three four five, one two three four five. Again, five times:"
        self.set(temperature=0, max_tokens=120)
        self.ask(question)
        self.wait(lambda: sum(self.figures().values()) > 0)
        self.wait(self.idle)
        shown, figures, after = self.shown(), self.figures(), self.counters()

        def more(name):
            return int(float(after[name]) - float(before[name]))
        # What is coloured, what is counted, and what the server counted are the same.
        self.assertEqual(shown["counts"], figures)
        self.assertEqual(sum(figures.values()), more("llamacpp:tokens_predicted_total"))
        self.assertEqual(figures["accepted"], more("llamacpp:spec_decode_num_accepted_tokens_total"))
        self.assertGreater(figures["accepted"], 0)
        self.assertEqual(int(self.text("#tokens")), sum(figures.values()))
        rows = self.driver.execute_script(
            "return [...document.querySelectorAll('#places tbody tr')].map((r) => r.cells[2].textContent.split(' / ').map(Number));")
        self.assertEqual(sum(a for a, _ in rows), figures["accepted"])
        self.assertEqual(sum(d for _, d in rows), more("llamacpp:spec_decode_num_draft_tokens_total"))
        self.assertGreater(float(self.text("#rate")), 0)
        # The text is that of the same request without the page.
        alone = self.server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": question}],
                                                          "temperature": 0, "max_tokens": 120})
        self.assertEqual(shown["text"], alone["choices"][0]["message"]["content"])
        # The colours are to be seen, and not where they are switched off.
        colour = "return getComputedStyle(document.querySelector('#log .accepted')).backgroundColor;"
        self.assertNotEqual(self.driver.execute_script(colour), "rgba(0, 0, 0, 0)")
        self.driver.execute_script("document.getElementById('colours').click();")
        self.assertEqual(self.driver.execute_script(colour), "rgba(0, 0, 0, 0)")
        # Control: with one token gone the comparison would have found it.
        self.driver.execute_script("document.querySelector('#log .answer .token').remove();")
        self.assertNotEqual(self.shown()["counts"], figures)
        self.assertEqual(self.errors(), [])

    def test_stop(self):
        self.set(temperature=0, max_tokens=1500, seed=1)
        self.driver.execute_script("document.getElementById('seed').dispatchEvent(new Event('change'));")
        self.ask("Tell a very long story about a lighthouse, with many chapters. Never end it.")
        self.wait(lambda: sum(self.figures().values()) > 5)
        self.assertFalse(self.idle())
        self.find("#stop").click()
        self.wait(self.idle, 10)
        self.assertLess(self.server.wait_idle(10), 10)
        count = sum(self.figures().values())
        self.assertLess(count, 1500)
        self.assertIn("stopped", self.text("#log .answer .end"))
        self.assertEqual(sum(self.shown()["counts"].values()), count)
        time.sleep(0.3)
        self.assertEqual(sum(self.figures().values()), count)  # nothing comes after it
        # The conversation goes on with what there is.
        self.set(max_tokens=8)
        self.ask("And then?")
        self.wait(lambda: self.idle() and len(self.driver.find_elements("css selector", "#log .answer")) == 2)
        self.assertEqual(self.errors(), [])
        self.find("#fresh").click()
        self.assertEqual(self.driver.find_elements("css selector", "#log .message"), [])

    def test_markup_and_split_characters_are_text(self):
        """A stream made up here: a character over three tokens, bytes that are none, and HTML."""
        self.driver.execute_script("""
            const token = (piece, origin) => ({id: 1, piece, origin});
            const event = (tokens, content) => 'data: ' + JSON.stringify({choices: [{delta: {content}}],
              lockstep: {tokens, drafts: [[2, 1]]}}) + '\\n\\n';
            const told = event([token([0xF0, 0x9F], 'plain'), token([0xA6], 'accepted')], '') +
              event([token([0x8A], 'corrected'), token('<img src=x onerror="document.title=1">', 'plain')], 'x') +
              event([token([0xFF], 'plain'), token([0xE2, 0x82], 'plain')], 'y') + 'data: [DONE]\\n\\n';
            const bytes = new TextEncoder().encode(told);
            window.fetch = async () => new Response(new ReadableStream({start(c) {
              for (const b of bytes) c.enqueue(Uint8Array.of(b));
              c.close();
            }}));""")
        self.ask("x")
        self.wait(self.idle)
        shown = self.shown()
        self.assertEqual(shown["counts"], {"accepted": 1, "corrected": 1, "plain": 4})
        self.assertEqual(shown["text"], '\U0001F98A<img src=x onerror="document.title=1">\uFFFD')
        self.assertEqual(self.driver.execute_script("return document.querySelectorAll('#log img').length;"), 0)
        self.assertEqual(self.driver.title, "Lockstep")

    def test_errors_are_told(self):
        self.set(max_tokens=-5, temperature="hot")
        self.set(temperature=1e300)
        self.ask("Hi")
        self.wait(lambda: self.driver.find_elements("css selector", "#log .wrong"))
        self.assertIn("temperature", self.text("#log .wrong"))
        self.assertTrue(self.idle())

    def test_a_phone_and_the_dark(self):
        self.driver.set_window_size(390, 844)
        self.addCleanup(self.driver.set_window_size, 1200, 900)
        wide, inner = self.driver.execute_script("return [document.documentElement.scrollWidth, innerWidth];")
        self.assertLessEqual(wide, inner)
        self.assertTrue(self.find("#send").is_displayed())
        colours = []
        for scheme in ("light", "dark"):
            self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                        {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
            colours.append(self.driver.execute_script("return getComputedStyle(document.body).backgroundColor;"))
        self.assertNotEqual(*colours)
        self.assertEqual(self.errors(), [])

    def test_a_picture(self):
        """Where LOCKSTEP_SCREENSHOT names a file: what docs/ shows."""
        target = os.environ.get("LOCKSTEP_SCREENSHOT")
        if not target:
            self.skipTest("no LOCKSTEP_SCREENSHOT")
        self.set(temperature=0, max_tokens=120)
        self.ask("Count: one two three four five, one two three four five. Again, five times:")
        self.wait(lambda: sum(self.figures().values()) > 0)
        self.wait(self.idle)
        pathlib.Path(target).write_bytes(self.driver.get_screenshot_as_png())


class Served(cli.CliTest):
    def test_files_and_their_headers(self):
        with Server("-t", "1", "--api-key", "secret") as server:
            for path, kind in [("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript")]:
                status, headers, body = server.request("GET", path)
                self.assertEqual(status, 200)  # the page needs no key, what it asks for does
                self.assertTrue(headers["Content-Type"].startswith(kind))
                self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
                source = cli.ROOT / "src/serve/page" / ("page.html" if path == "/" else path[1:])
                self.assertEqual(body, source.read_bytes())
                # Nothing is asked of anyone else.
                self.assertNotRegex(body.decode(), r"https?://")
        with Server("-t", "1", "--no-webui") as server:
            self.assertEqual(server.request("GET", "/")[0], 404)


if __name__ == "__main__":
    unittest.main()
