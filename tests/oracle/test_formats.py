"""Weight types as the law reads them (tests/law/law/weights.py) against the gguf package, by bits, on
random blocks. Needs no binary and no model."""
import pathlib
import sys
import unittest

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "law"))
from law import weights  # noqa: E402

HALF_AT = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2),
           "Q5_K": (0, 2), "Q6_K": (208,), "MXFP4": ()}


class Formats(unittest.TestCase):
    def test_every_quantised_type_equals_the_gguf_package(self):
        rng = np.random.default_rng(5)
        for name, (elements, size, form, _) in weights.TYPES.items():
            if form == 0:
                continue
            kind = GGMLQuantizationType[name]
            self.assertEqual(GGML_QUANT_SIZES[kind], (elements, size))
            n = 20000
            raw = rng.integers(0, 256, (n, size), dtype=np.uint8)
            for at in HALF_AT.get(name, (0,)):  # any finite binary16
                half = rng.integers(0, 0x7C00, n) | rng.integers(0, 2, n) << 15
                raw[:, at:at + 2] = half.astype("<u2")[:, None].view(np.uint8)
            if name == "MXFP4":
                raw[:, 0] = np.minimum(raw[:, 0], 252)
            ours = weights.values(name, raw.tobytes()).reshape(n, elements)
            theirs = dequantize(raw, kind)
            with self.subTest(name):
                same = (ours.view(np.uint32) == theirs.view(np.uint32)) | ((ours == 0) & (theirs == 0))
                self.assertTrue(same.all(), "%d of %d differ" % ((~same).sum(), same.size))


if __name__ == "__main__":
    unittest.main()
