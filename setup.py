"""Builds the Python package through CMake, which makes all of it; setuptools only collects the files.

BITCUBE_BUILD_DIR names a configured build tree to use instead of a new one. CMAKE_ARGS has further arguments of CMake.
CMAKE_BUILD_PARALLEL_LEVEL limits how many compilers run at once, else it is one per processor.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent


def version() -> str:
    """The version stands in CMakeLists.txt and nowhere else."""
    return re.search(r"project\(bitcube VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


class CMakeBuild(build_ext):

    def run(self) -> None:
        given = os.environ.get("BITCUBE_BUILD_DIR")
        tree = Path(given or self.build_temp).resolve()
        if not given:
            generator = ["-G", "Ninja"] if shutil.which("ninja") else []
            subprocess.run(
                ["cmake", "-S", str(ROOT), "-B", str(tree), *generator, "-DCMAKE_BUILD_TYPE=Release",
                 "-DBITCUBE_TESTS=OFF", "-DBITCUBE_PYTHON=ON", f"-DBITCUBE_PYTHON_EXECUTABLE={sys.executable}",
                 *shlex.split(os.environ.get("CMAKE_ARGS", ""))], check=True)
        # CMake reads its own variable where no -j overrides it.
        jobs = self.parallel or (None if os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") else os.cpu_count() or 1)
        subprocess.run(["cmake", "--build", str(tree), "--target", "bitcube_python_package",
                        *(["-j", str(jobs)] if jobs else [])], check=True)
        package = tree / "python" / "bitcube"
        if not (package / ("_bitcube" + sysconfig.get_config_var("EXT_SUFFIX"))).exists():
            sys.exit(f"{tree} is not built for {sys.executable}; see BITCUBE_PYTHON_EXECUTABLE in docs/python.md")
        target = ROOT / "python" / "bitcube" if self.inplace else Path(self.build_lib) / "bitcube"
        for source in package.rglob("*"):
            is_source = (ROOT / "python" / "bitcube" / source.name).exists() and source.parent == package
            if source.is_dir() or "__pycache__" in source.parts or (self.inplace and is_source):
                continue
            place = target / source.relative_to(package)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place)

    def get_outputs(self):
        return [str(p) for p in (Path(self.build_lib) / "bitcube").rglob("*") if p.is_file()]


# build/ is CMake's.
BASE = ROOT / "build-python"
BASE.mkdir(exist_ok=True)

setup(version=version(), package_dir={"": "python"}, packages=["bitcube"],
      package_data={"bitcube": ["py.typed", "*.pyi"]}, ext_modules=[Extension("bitcube._bitcube", [])],
      cmdclass={"build_ext": CMakeBuild}, zip_safe=False,
      options={"build": {"build_base": str(BASE)}, "egg_info": {"egg_base": str(BASE)}})
