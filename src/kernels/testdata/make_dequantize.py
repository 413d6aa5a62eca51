"""Writes dequantize.txt: random blocks of each format and what the gguf Python package makes of them.

Usage: python3 make_dequantize.py > dequantize.txt   (needs numpy and gguf 0.10 or later)
Each line: format name, the bytes of the blocks in hex, the float32 values (little endian) in hex.
"""

import numpy as np
from gguf import GGMLQuantizationType, quants

# Format, bytes a block, offsets of its f16 fields, blocks to write.
FORMATS = [
    ("F16", 2, [0], 32),
    ("Q4_0", 18, [0], 4),
    ("Q4_1", 20, [0, 2], 4),
    ("Q5_0", 22, [0], 4),
    ("Q8_0", 34, [0], 4),
    ("Q4_K", 144, [0, 2], 2),
    ("Q6_K", 210, [208], 2),
    ("BF16", 2, [], 32),
    ("Q5_1", 24, [0, 2], 4),
    ("Q2_K", 84, [80, 82], 2),
    ("Q3_K", 110, [108], 2),
    ("Q5_K", 176, [0, 2], 2),
    ("IQ4_NL", 18, [0], 4),
    ("IQ4_XS", 136, [0], 2),
    ("MXFP4", 17, [], 6),
]
# Among ordinary scales: zero, minus zero, the smallest subnormal, the largest number.
SPECIAL = [0x0000, 0x8000, 0x0001, 0x7BFF]

rng = np.random.default_rng(20240601)
for name, block_bytes, half_offsets, count in FORMATS:
    blocks = rng.integers(0, 256, (count, block_bytes), dtype=np.uint8)
    for b in range(count):
        for i, offset in enumerate(half_offsets):
            half = np.float16(rng.normal() * 0.05).view(np.uint16)
            if name == "F16" and b < len(SPECIAL):
                half = np.uint16(SPECIAL[b])
            elif count == 4 and b >= 2:
                half = np.uint16(SPECIAL[2 * (b - 2) + i] if len(half_offsets) == 2 else SPECIAL[b])
            blocks[b, offset : offset + 2] = np.frombuffer(half.tobytes(), np.uint8)
    if name == "MXFP4":  # Both subnormal scales, the smallest normal one, the largest.
        blocks[:4, 0] = [0, 1, 2, 255]
    values = quants.dequantize(blocks.reshape(-1), GGMLQuantizationType[name])
    print(name, blocks.tobytes().hex(), values.astype("<f4").tobytes().hex())
