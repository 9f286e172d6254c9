"""What the documents and the examples show is what happens."""

import os
import re
import subprocess
import sys

from conftest import SOURCE


def sessions(name):
    """(code, output) of the blocks ```python that a block ``` follows."""
    with open(os.path.join(SOURCE, name), encoding="utf-8") as file:
        return re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", file.read(), re.S)


def run(*arguments):
    return subprocess.run([sys.executable, *arguments], cwd=SOURCE, capture_output=True, text=True, check=True).stdout


def test_readme():
    found = sessions("README.md")
    assert found
    for code, output in found:
        assert run("-c", code) == output


def test_reference():
    found = sessions("docs/python.md")
    assert len(found) >= 4
    for code, output in found:
        assert run("-c", code) == output


def test_example(tmp_path):
    plot = tmp_path / "formats.png"
    script = os.path.join("examples", "python", "compare_formats.py")
    said = run(script)
    assert run(script, plot) == said + f"\nplot in {plot}\n"
    assert plot.read_bytes().startswith(b"\x89PNG") and plot.stat().st_size > 20000
    assert re.search(r"^hif4 +4\.50 +21\.81 dB", said, re.M)
    assert re.search(r"^fp32 +97\.8%", said, re.M)
    assert list(tmp_path.iterdir()) == [plot]
