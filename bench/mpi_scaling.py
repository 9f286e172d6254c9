"""How quantising a checkpoint scales with ranks on one machine: median of several runs, as docs/scaling.md has them.

usage: mpi_scaling.py path/to/bitcube path/to/bitcube-mpi FOLDER [MB [RUNS]]
"""
import json
import os
import pathlib
import resource
import statistics
import struct
import subprocess
import sys
import time

import numpy as np

BITCUBE, MPI, FOLDER = (os.path.abspath(word) for word in sys.argv[1:4])
MEGABYTES = int(sys.argv[4]) if len(sys.argv) > 4 else 500
RUNS = int(sys.argv[5]) if len(sys.argv) > 5 else 5
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
SHAPE = (2048, 4096)  # of each tensor, BF16

source = pathlib.Path(FOLDER, "source.safetensors")
output = pathlib.Path(FOLDER, "output.safetensors")
normal = np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)
words = (normal.view(np.uint32) >> 16).astype(np.uint16)
count = max(1, MEGABYTES * 1000000 // words.nbytes)
header = {f"t{i}": {"dtype": "BF16", "shape": SHAPE, "data_offsets": [i * words.nbytes, (i + 1) * words.nbytes]}
          for i in range(count)}
text = json.dumps(header).encode()
with open(source, "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    for i in range(count):
        file.write(np.roll(words, 977 * i).tobytes())
megabytes = count * words.nbytes / 1e6

cases = {"bitcube, 1 thread": [BITCUBE]}
for ranks in (1, 2, 4):
    cases[f"{ranks} rank{'s' if ranks > 1 else ''} of 1 thread"] = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n",
                                                                    str(ranks), MPI]
measured = {name: [] for name in cases}
for _ in range(RUNS):  # in turn, so that what else the machine does meets all of them
    for name, start in cases.items():
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run([*start, "quantize", source, "-f", "hif4", "--threads", "1", "--json", "-o", output],
                              capture_output=True, text=True, env=ENVIRONMENT, check=True)
        wall, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        measured[name].append((wall, json.loads(done.stdout)["seconds"], cpu))
        output.unlink()
source.unlink()

print(f"{megabytes:.0f} MB of BF16, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {RUNS} runs; medians (least)")
print(f"{'':22}{'whole run':>16}{'work':>16}{'CPU':>16}{'MB/s of work':>16}")
for name, rows in measured.items():
    columns = list(zip(*rows))
    cells = [f"{statistics.median(c):.2f} ({min(c):.2f}) s" for c in columns]
    print(f"{name:22}" + "".join(f"{cell:>16}" for cell in cells) + f"{megabytes / statistics.median(columns[1]):>16.0f}")
