"""pip install, without a network and with the packages of the system, from the objects that are built already."""

import os
import shlex
import shutil
import subprocess
import sys

from conftest import SOURCE


def test_number_of_compilers(tmp_path):
    # A CMake that writes down what it is asked; that it builds nothing ends the installation.
    source, log = tmp_path / "source", tmp_path / "log"
    source.mkdir()
    for name in ("setup.py", "CMakeLists.txt"):
        shutil.copy(os.path.join(SOURCE, name), source)
    (source / "python" / "bitcube").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    cmake = tmp_path / "bin" / "cmake"
    cmake.write_text(f'#!/bin/sh\necho "$@" > {shlex.quote(str(log))}\n')
    cmake.chmod(0o755)

    def asked(arguments, **more):
        environment = {k: v for k, v in os.environ.items() if k != "CMAKE_BUILD_PARALLEL_LEVEL"}
        environment |= {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "BITCUBE_BUILD_DIR": str(tmp_path), **more}
        subprocess.run([sys.executable, "setup.py", "-q", "build_ext", *arguments], cwd=source, env=environment,
                       capture_output=True, check=False)
        return log.read_text().split("bitcube_python_package")[1].split()

    assert asked([]) == ["-j", str(os.cpu_count())]
    assert asked([], CMAKE_BUILD_PARALLEL_LEVEL="3") == []
    assert asked(["-j7"], CMAKE_BUILD_PARALLEL_LEVEL="3") == ["-j", "7"]


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
