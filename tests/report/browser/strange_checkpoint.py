"""Writes a .safetensors file whose tensors have names and values that a page may stumble on."""
import json
import struct
import sys

import numpy as np

random = np.random.default_rng(1)
tensors = {
    "<script>alert('tensor')</script>": random.normal(size=(70, 130)),
    "\"><img src=x onerror=alert(2)>": random.normal(size=(4, 64)),
    "]]></style></svg><!--&amp;&#60;b>": random.normal(size=(4, 64)),
    "right \u202eto left\u2028line\u0000\u0007\ufffe \u05d0\u05d1": random.normal(size=(4, 64)),
    "a.very.long." + "name." * 60 + "weight": random.normal(size=(4, 64)),
    "zeros": np.zeros((4, 64)),
    "special": np.full((4, 64), np.inf),
    "huge": random.normal(size=(4, 64)) * 1e30,
    "tiny": random.normal(size=(4, 64)) * 1e-40,
    "scalar": np.float32(1),
    "": random.normal(size=(4, 64)),
    "nan": np.full((4, 64), np.nan),
    "empty": np.zeros((0, 64)),
    "long" * 700: random.normal(size=(4, 64)),
}
tensors |= {f"model.language_model.layers.{i}.self_attn.out_proj.weight": random.normal(size=(2, 64)) for i in range(45)}
header, data = {}, b""
for name, values in tensors.items():
    values = np.asarray(values, dtype=np.float32)
    header[name] = {"dtype": "F32", "shape": values.shape, "data_offsets": [len(data), len(data) + values.nbytes]}
    data += values.tobytes()
text = json.dumps(header).encode()
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + data)
