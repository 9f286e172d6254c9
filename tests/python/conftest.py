"""What the tests of the Python package share: the program to compare with, and settings that leave nothing behind."""

import json
import os
import subprocess
import zlib

import hypothesis
import numpy as np
import pytest

# The same examples on every machine, so that a failure is found again; no database, no deadline on a busy machine.
hypothesis.settings.register_profile("bitcube", derandomize=True, database=None, deadline=None, max_examples=60,
                                     suppress_health_check=list(hypothesis.HealthCheck))
hypothesis.settings.load_profile("bitcube")

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


class Program:
    """The C++ program in a directory of its own."""

    def __init__(self, directory):
        self.path = os.environ["BITCUBE_PROGRAM"]
        self.directory = directory

    def run(self, *arguments, code=0):
        """The result of `bitcube ARGUMENTS --json`, or of another exit code the error message."""
        done = subprocess.run([self.path, *map(str, arguments), "--json"], cwd=self.directory, capture_output=True,
                              text=True, check=False)
        assert done.returncode == code, done.stderr
        if code == 2:
            return json.loads(done.stderr.splitlines()[-1])["error"]
        return json.loads(done.stdout)

    def save(self, name, array):
        np.save(self.directory / name, np.asarray(array, order="C"))
        return name

    def load(self, name):
        return np.load(self.directory / name)


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    return Program(tmp_path_factory.mktemp("program"))


@pytest.fixture
def rng(request):
    return np.random.default_rng(zlib.crc32(request.node.name.encode()))


def any_bits(rng, dtype, shape):
    """Elements of any bit pattern: NaN, infinities, subnormals; every second one of ordinary size."""
    dtype = np.dtype(dtype)
    bits = rng.integers(0, 256, (*shape, dtype.itemsize), dtype=np.uint8).view(dtype).reshape(shape)
    if dtype.kind == "f":
        ordinary = (rng.standard_normal(shape) * 10.0**rng.integers(-3, 3)).astype(dtype)
        return np.where(rng.random(shape) < 0.5, bits, ordinary)
    return bits


def same(a, b):
    """Equal dtypes, shapes and bytes."""
    assert a.dtype == b.dtype and a.shape == b.shape
    assert a.tobytes() == b.tobytes()


def flag_list(flags):
    return [] if str(flags) == "-" else str(flags).split()
