"""Writes encode.txt: rows of floats and the bytes that the gguf Python package makes of them.

Usage: python3 make_encode.py > encode.txt   (needs numpy and gguf 0.10 or later)
Each line: format name, the float32 values (little endian) in hex, the bytes in hex.
"""

import numpy as np
from gguf import GGMLQuantizationType, quants

rng = np.random.default_rng(20240602)
rows = rng.normal(0, 0.05, (6, 32)).astype(np.float32)
rows[1] *= 1e-4
rows[2] = 0
rows[3] = np.arange(32, dtype=np.float32) - 16  # Ties.
rows[4] = 0.25
rows[5, 7] = -300.0
for name in ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q8_0"]:
    for row in rows:
        data = quants.quantize(row.reshape(1, 32), GGMLQuantizationType[name])
        print(name, row.astype("<f4").tobytes().hex(), data.tobytes().hex())
