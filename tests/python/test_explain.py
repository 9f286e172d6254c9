"""explain() against the program and against the functions whose results it explains."""

import os
import re
import subprocess

import numpy as np
import pytest

import bitcube
from conftest import SOURCE

PROGRAM = "BSTART.TMATMULMX.BIAS E4M3\nC.BSTOP\n"


def agrees(program, explanation, *arguments):
    """The program says the same."""
    assert isinstance(explanation, bitcube.Explanation)
    assert explanation.to_dict() == program.run("explain", *arguments)


def test_conversion_of_a_number(program):
    e = bitcube.explain("464", to="e4m3")
    assert e.result == "0x7F = nan, flags OF NX"
    assert e.sections[0]["title"] == "Source: an exact number"
    assert str(e).endswith("result  0x7F = nan, flags OF NX\n")
    agrees(program, e, "convert", "--to", "e4m3", "464")


def test_conversion_of_an_element(program):
    x = np.float32(0.1)
    e = bitcube.explain(x, to="hif8", rounding="rhb", saturate=True, profile="ocp")
    codes, flags = bitcube.convert(x, "hif8", "rhb", True, "ocp")
    assert e.result.startswith(f"0x{int(codes):02X} = ") and e.result.endswith(f"flags {flags}")
    agrees(program, e, "convert", "--to", "hif8", "--round", "rhb", "--sat", "--profile", "ocp", "--from", "fp32",
           f"0x{int(x.view(np.uint32)):08X}")


@pytest.mark.parametrize("arguments, options", [
    ({"format": "hif4", "axis": 0, "profile": "paper"}, ["--format", "hif4", "--axis", "0", "--profile", "paper"]),
    ({"format": "mxfp8-e5m2", "scale": "even", "rounding": "rna"},
     ["--format", "mxfp8-e5m2", "--scale", "even", "--round", "rna"]),
    ({"format": "nvfp4", "tensor_scale": True, "source_type": "bf16"},
     ["--format", "nvfp4", "--tensor-scale", "--source-type", "bf16"]),
])
def test_quantisation(program, rng, arguments, options):
    w = rng.standard_normal((70, 133)).astype(np.float32)
    e = bitcube.explain(w, at=(66, 129), **arguments)
    agrees(program, e, "quantize", program.save("w.npy", w), "--at", "66,129", *options)
    q = bitcube.quantize(w, **arguments)
    # A value that is cut off in the text is none of these formats'.
    value = e.result.rpartition("= ")[2]
    parsed = float.fromhex(value) if "0x" in value else float(value)
    assert parsed == q.dequantize("float64")[66, 129]


def test_word(program):
    e = bitcube.explain(word=0x38531181)
    assert e.result == "BSTART.TMATMULMX.BIAS E4M3"
    agrees(program, e, "word", "0x38531181")


def test_program():
    e = bitcube.explain(program=bitcube.Program(PROGRAM))
    assert e.result.startswith("BundleControl B2")
    assert bitcube.explain(program=bitcube.Program("BSTART.TMATMUL FP16\n"), all=True).result == "no fault"


def test_a_copy_of_the_document():
    e = bitcube.explain(word=1)
    e.to_dict()["sections"].clear()
    assert e.sections and e.title in repr(e)


@pytest.mark.parametrize("call, message", [
    (lambda: bitcube.explain(), "needs one of"),
    (lambda: bitcube.explain(1.0, to="e4m3", format="hif4"), "not to and format"),
    (lambda: bitcube.explain(to="e4m3"), "needs one"),
    (lambda: bitcube.explain(1.0, word=1), "takes none"),
    (lambda: bitcube.explain(1.0, to="e4m3", at=3), "at"),
    (lambda: bitcube.explain("1", to="e4m3", from_="fp32"), "no format"),
    (lambda: bitcube.explain(program="x"), "a Program, not str"),
])
def test_what_does_not_belong_together(call, message):
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize("call, message", [
    (lambda: bitcube.explain("1x", to="e4m3"), "unexpected characters"),
    (lambda: bitcube.explain([1.0, 2.0], to="e4m3"), "one element is explained, not 2"),
    (lambda: bitcube.explain(1.0, to="e6m2"), "does not convert"),
    (lambda: bitcube.explain(np.ones((2, 3)), format="hif4", at=(2, 0)), "not in an array"),
    (lambda: bitcube.explain(np.ones((2, 3)), format="hif4", at=1), "not in an array"),
    (lambda: bitcube.explain(np.ones(3), format="hif4", at=1, scale="even"), "it is for the MX formats"),
    (lambda: bitcube.explain(word=0x1_3853_1181), "higher bits"),
])
def test_values_that_are_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_document_shows_what_the_program_prints():
    with open(os.path.join(SOURCE, "docs", "explain.md"), encoding="utf-8") as file:
        sessions = re.findall(r"```\n\$ build/bitcube ([^\n]*)\n(.*?)```", file.read(), re.S)
    assert len(sessions) >= 4
    for command, output in sessions:
        done = subprocess.run([os.environ["BITCUBE_PROGRAM"], *command.split()], cwd=SOURCE, capture_output=True,
                              text=True, check=True)
        assert done.stdout == output
