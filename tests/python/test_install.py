"""pip install, without a network and with the packages of the system, from the objects that are built already."""

import os
import shutil
import subprocess
import sys

from conftest import SOURCE

CHECK = """
import sys, numpy, bitcube
assert bitcube.__file__.startswith(sys.argv[1]), bitcube.__file__
assert bitcube.convert(numpy.float32(1.0625), "e4m3")[0] == 0x38
import importlib.metadata
assert importlib.metadata.version("bitcube") == bitcube.__version__
"""


def test_pip_install(tmp_path):
    # A copy, so that nothing is left in the source tree; the code itself is built there.
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "CMakeLists.txt", "README.md"):
        shutil.copy(os.path.join(SOURCE, name), source)
    shutil.copytree(os.path.join(SOURCE, "python"), source / "python", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--no-index", "--no-build-isolation", "--no-deps",
                           "--disable-pip-version-check", "--no-cache-dir", "--target", target, source],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    environment = {**os.environ, "PYTHONPATH": str(target)}
    subprocess.run([sys.executable, "-c", CHECK, str(target)], env=environment, cwd=tmp_path, check=True)
    said = subprocess.run([sys.executable, "-m", "bitcube", "convert", "--to", "e4m3", "1.0625"], env=environment,
                          cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert said == "1.0625 -> 0x38  1  NX (RNE, pto)\n"
    installed = target / "bitcube"
    for name in ("py.typed", "_bitcube.pyi", "share/bitcube/mnist-mlp/images.npy"):
        assert (installed / name).exists()
    assert os.access(installed / "bin" / "bitcube", os.X_OK)
