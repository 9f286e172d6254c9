"""What the documents and the examples show is what happens."""

import os
import re
import subprocess
import sys

import pytest

from conftest import SOURCE


def sessions(name):
    """(code, output) of the blocks ```python that a block ``` follows."""
    with open(os.path.join(SOURCE, name), encoding="utf-8") as file:
        return re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", file.read(), re.S)


def run(*arguments):
    return subprocess.run([sys.executable, *arguments], cwd=SOURCE, capture_output=True, text=True, check=True).stdout


# Line by line, as into Python's prompt.
PASTE = """
import code, sys
console = code.InteractiveConsole()
for line in sys.argv[1].split("\\n"):
    console.push(line)
"""


@pytest.mark.parametrize("name, sections", [("README.md", 1), ("docs/python.md", 4)])
def test_what_is_shown_is_what_happens(name, sections):
    found = sessions(name)
    assert len(found) == sections
    for code, output in found:
        assert run("-c", code) == output
        assert run("-c", PASTE, code) == output


def test_example(tmp_path):
    plot = tmp_path / "formats.png"
    script = os.path.join("examples", "python", "compare_formats.py")
    said = run(script)
    assert run(script, plot) == said + f"\nplot in {plot}\n"
    assert plot.read_bytes().startswith(b"\x89PNG") and plot.stat().st_size > 20000
    assert re.search(r"^hif4 +4\.53 +21\.81 dB", said, re.M)
    for line in ("fp32         97.8%", "hif4         97.9%", "mxfp4        97.4%"):  # as `bitcube demo` has it
        assert line in said.splitlines()
    assert list(tmp_path.iterdir()) == [plot]
