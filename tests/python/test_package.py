"""The package itself: tables, flags, stubs, docstrings, the program inside it."""

import ast
import inspect
import os
import signal
import subprocess
import sys
import time

import bitcube
from bitcube import _bitcube
from conftest import SOURCE

PACKAGE = os.path.dirname(bitcube.__file__)


def test_flags_are_those_of_the_library():
    assert {flag.name: int(flag) for flag in bitcube.Flags} == _bitcube.flag_names()
    both = bitcube.Flags.OF | bitcube.Flags.NX
    assert str(both) == "OF NX" and str(bitcube.Flags(0)) == "-" and bitcube.Flags.NX in both and int(both) == 20


def test_tables_are_those_of_the_program(program):
    rows = {row["name"]: row for row in program.run("formats")}
    assert [f.name for f in bitcube.formats()] == list(rows)
    for f in bitcube.formats():
        row = rows[f.name]
        for field in ("alias", "code", "lane_bits", "value_bits", "carrier_bits", "lanes_per_carrier", "sign_bits"):
            assert getattr(f, field) == row.get(field)
        digits = (f.lane_bits + 3) // 4
        for field in ("nan", "infinity"):
            code = getattr(f, field)
            assert row[field] == (None if code is None else f"0x{code:0{digits}X}")
        if f.kind in ("float", "scale"):
            assert list(f.exponent_bits) == row["exponent_bits"] and f.bias == row["bias"]
    for f in bitcube.block_formats():
        assert f.element in rows and f.scale in rows


def test_the_version_is_that_of_the_program(program):
    said = subprocess.run([program.path, "--version"], capture_output=True, text=True, check=True).stdout
    assert said == f"bitcube {bitcube.__version__}\n"


def module(*arguments, **options):
    return subprocess.run([sys.executable, "-m", "bitcube", *arguments], capture_output=True, text=True, check=False,
                          **options)


def test_python_m_bitcube_is_the_program(program):
    for arguments in (["convert", "--to", "e4m3", "1.0625", "464", "--profile", "ocp"], ["formats"], ["convert"],
                      ["run", os.path.join(SOURCE, "examples/programs/w1.s")], []):
        want = subprocess.run([program.path, *arguments], capture_output=True, text=True, check=False)
        got = module(*arguments)
        assert (got.returncode, got.stdout, got.stderr) == (want.returncode, want.stdout, want.stderr)
    assert module("convert", "--to", "bf16", "-", input="1\n2\n").stdout.count("\n") == 2
    assert module("nothing").returncode == 2


def test_the_demo_finds_its_data_in_the_package():
    assert os.path.exists(os.path.join(PACKAGE, "share/bitcube/mnist-mlp/images.npy"))


def test_everything_public_is_documented_and_typed():
    for name in bitcube.__all__:
        thing = getattr(bitcube, name)
        if name == "__version__":
            continue
        assert thing.__doc__, name
        if inspect.isfunction(thing):
            signature = inspect.signature(thing)
            assert signature.return_annotation is not inspect.Signature.empty, name
            for parameter in signature.parameters.values():
                assert parameter.annotation is not inspect.Parameter.empty, (name, parameter)
    assert os.path.exists(os.path.join(PACKAGE, "py.typed"))


def test_the_stub_names_what_the_extension_has():
    with open(os.path.join(PACKAGE, "_bitcube.pyi"), encoding="utf-8") as file:
        tree = ast.parse(file.read())

    def names(body):
        out = {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        return out | {node.target.id for node in body if isinstance(node, ast.AnnAssign)}

    def public(thing):
        return {n for n in vars(thing) if not n.startswith("_") or n == "__version__"}

    assert names(tree.body) == public(_bitcube)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            assert names(node.body) - {"__init__"} == public(getattr(_bitcube, node.name)), node.name


def test_arguments_that_are_numbers_or_names_may_be_given_by_name():
    for function in (bitcube.convert, bitcube.quantize, bitcube.matmul, bitcube.postprocess):
        assert inspect.signature(function).parameters["threads"].kind is inspect.Parameter.KEYWORD_ONLY


def comm(process):
    """The name of a process as the kernel knows it."""
    with open(f"/proc/{process.pid}/comm", encoding="utf-8") as file:
        return file.read().strip()


def test_interrupts_end_the_program():
    """SIGINT reaches the program, which took the place of Python."""
    process = subprocess.Popen([sys.executable, "-m", "bitcube", "convert", "--to", "bf16", "-"],
                               stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        give_up = time.monotonic() + 20
        while comm(process) != "bitcube" and time.monotonic() < give_up:
            time.sleep(0.01)
        assert comm(process) == "bitcube"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == -signal.SIGINT
        # Nothing where the signal comes before the program watches for signals; no traceback of Python in any case.
        assert process.stderr.read() in (b"", b"bitcube: error: stopped by SIGINT\n")
    finally:
        process.kill()
        process.communicate()
