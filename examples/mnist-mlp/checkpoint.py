"""Writes the weights and biases of the digits as one .safetensors checkpoint: checkpoint.py OUTPUT"""

import json
import struct
import sys
from pathlib import Path

import numpy as np

folder = Path(__file__).resolve().parent
header = {"__metadata__": {"format": "pt"}}
payload = b""
for i in range(3):
    for letter, name in (("w", "weight"), ("b", "bias")):
        array = np.load(folder / f"{letter}{i}.npy").astype("<f4")
        begin = len(payload)
        payload += array.tobytes()
        header[f"layers.{i}.{name}"] = {"dtype": "F32", "shape": array.shape, "data_offsets": [begin, len(payload)]}
text = json.dumps(header, separators=(",", ":")).encode()
text += b" " * (-len(text) % 8)
Path(sys.argv[1]).write_bytes(struct.pack("<Q", len(text)) + text + payload)
