"""The judge itself: what it must pass, and what it must not. Needs no binary and no model."""
import copy
import unittest

import numpy as np

import judge


def exact_result(reference):
    """An eval result made of the recorded float64 values; rows before the first judged one are fillers."""
    sequences = []
    for s in reference["sequences"]:
        top = [[{"id": i, "logprob": x} for i, x in zip(*entry)] for entry in s["top"]]
        sequences.append({"logprobs": s["next"][:1] * s["first"] + s["next"], "top": top[:1] * s["first"] + top})
    return {"sequences": sequences}


class Judge(unittest.TestCase):
    def setUp(self):
        self.model = judge.MODELS[0]
        self.llama = judge.load_llama(self.model, f"top {judge.TOP_ORACLE}")
        self.result = exact_result(judge.load_reference(self.model))

    def verdict(self, result):
        return judge.verdict(judge.judge_recorded(self.model, result).summary(), self.llama)

    def test_float64_itself_passes(self):
        summary = judge.judge_recorded(self.model, self.result).summary()
        self.assertLess(abs(summary["mean_kl"]), 1e-9)
        self.assertEqual(summary["top1_percent"], 100)
        self.assertGreaterEqual(summary["positions"], 1000)
        self.assertEqual(self.verdict(self.result), [])

    def test_noise_worth_twice_the_kl_of_llama_cpp_fails(self):
        self.assertNotEqual(self.verdict(judge.with_noise(self.result, self.llama["mean_kl"])), [])

    def test_off_by_one_fails(self):
        self.assertEqual(len(self.verdict(judge.one_late(self.result))), 2)

    def test_swapped_first_ids_fail_top1(self):
        for s in self.result["sequences"]:
            for top in s["top"][::10]:
                top[0]["id"], top[1]["id"] = top[1]["id"], top[0]["id"]
        self.assertTrue(any("top-1" in line for line in self.verdict(self.result)))

    def test_bad_results_are_named(self):
        def changed(change):
            result = copy.deepcopy(self.result)
            change(result["sequences"])
            return result
        cases = {
            "sequence 3 is missing": lambda s: s[3:].clear() or s.__delitem__(slice(3, None)),
            "entries, needs": lambda s: s[0]["top"].pop(),
            "not finite": lambda s: s[0]["top"][5][2].update(logprob=float("nan")),
            "descending list of distinct": lambda s: s[0]["top"][5][2].update(id=s[0]["top"][5][1]["id"]),
            "sum to": lambda s: [e.update(logprob=e["logprob"] + 1) for e in s[0]["top"][5]],
        }
        for text, change in cases.items():
            with self.subTest(text), self.assertRaisesRegex(judge.BadResult, text):
                judge.judge_recorded(self.model, changed(change))


class LeastKl(unittest.TestCase):
    def setUp(self):
        rng = np.random.default_rng(5)
        self.p = np.log(rng.dirichlet(np.full(50, 0.3)))
        self.q = np.log(rng.dirichlet(np.full(50, 0.3)))
        self.ids = np.arange(50)

    def test_all_named_is_the_kl(self):
        whole = judge.whole_row_kl(self.p[None], self.q[None])[0]
        self.assertAlmostEqual(judge.least_kl(self.ids, self.p, self.ids, self.q), whole, places=9)

    def test_it_is_a_lower_bound_whatever_is_named(self):
        rng = np.random.default_rng(6)
        for _ in range(200):
            p, q = np.log(rng.dirichlet(np.full(50, 0.3), 2))
            by_p, by_q = np.argsort(-p)[:rng.integers(1, 50)], np.argsort(-q)[:rng.integers(1, 50)]
            kl = judge.least_kl(by_p, p[by_p], by_q, q[by_q])
            self.assertLessEqual(kl, judge.whole_row_kl(p[None], q[None])[0] + 1e-9)
            self.assertGreaterEqual(kl, -1e-9)

    def test_more_named_is_nearer(self):
        kl = [judge.least_kl(self.ids[:n], self.p[:n], self.ids, self.q) for n in (1, 5, 20, 50)]
        self.assertEqual(kl, sorted(kl))
        self.assertGreaterEqual(kl[0], 0)

    def test_an_engine_that_names_other_ids_is_not_excused(self):
        p = np.log(np.array([0.98, 0.01, 0.01]))
        self.assertGreater(judge.least_kl(self.ids[:3], p, self.ids[10:12], np.log([0.6, 0.39])), 1)


if __name__ == "__main__":
    unittest.main()
