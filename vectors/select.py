#!/usr/bin/env python3
"""Make the compact selection of golden vectors in this folder from the full set.

usage: select.py FULL_SET_DIRECTORY [DESTINATION]

Small files are copied whole. Of a large one the header, the corner cases at its start and a fixed pseudo-random choice
of the other rows are kept, in their order, up to the number of bytes in LIMITS.
"""
import os
import random
import shutil
import sys

WHOLE = 600_000
LIMITS = {
    "accumulate.csv": 800_000,
    "cube_index.csv": 300_000,
    "e8m0.csv": 350_000,
    "encoders.csv": 500_000,
    "formats_32_64bit.csv": 200_000,
    "formats_bf16_all.csv": 200_000,
    "formats_fp16_all.csv": 200_000,
    "mx_groups.csv": 600_000,
    "postprocess.csv": 900_000,
    "reduction.csv": 250_000,
    "tcvt_float.csv": 800_000,
}


def select(source, destination, limit):
    with open(source, newline="") as file:
        header, *rows = file.readlines()
    size = sum(map(len, rows))
    corner = 0
    kept = []
    for row in rows:
        if corner + len(row) > limit // 3:
            break
        corner += len(row)
        kept.append(row)
    rest = rows[len(kept):]
    share = (limit - corner) / (size - corner)
    generator = random.Random(20261130)
    kept += [row for row in rest if generator.random() < share]
    with open(destination, "w", newline="") as file:
        file.writelines([header, *kept])


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    source = sys.argv[1]
    destination = sys.argv[2] if len(sys.argv) == 3 else os.path.dirname(os.path.abspath(__file__))
    for name in sorted(os.listdir(source)):
        path = os.path.join(source, name)
        if os.path.getsize(path) <= LIMITS.get(name, WHOLE):
            shutil.copyfile(path, os.path.join(destination, name))
        else:
            select(path, os.path.join(destination, name), LIMITS.get(name, WHOLE))


main()
