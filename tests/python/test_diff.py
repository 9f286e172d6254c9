"""diff(): the library's report as an object, and the same text as the program's."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

import bitcube

DATA = pathlib.Path(__file__).resolve().parents[2] / "examples" / "mnist-mlp"


@pytest.fixture(scope="module")
def weights():
    return np.load(DATA / "w0.npy")


def test_a_tie_rule(tmp_path):
    images = np.load(DATA / "images.npy")
    golden, _ = bitcube.convert(images, to="e4m3")
    dut, _ = bitcube.convert(images, to="e4m3", rounding="RNA")
    d = bitcube.diff(golden, dut, "e4m3", from_array=images)
    assert d and not d.equal and not d.passes
    assert d.mismatches == int((golden != dut).sum())
    assert d.golden_faults == 0
    best = d.diagnoses[0]
    assert best.ids == ("tie-rule", ) and best.certainty == "complete"
    assert best.explains == best.of == d.mismatches and best.introduces == 0
    assert d.parts[0]["classes"]["1 ulp"] == d.mismatches
    assert d.to_dict()["diagnoses"][0]["title"] == best.title
    assert best.title in str(d)

    np.save(tmp_path / "golden", golden)
    np.save(tmp_path / "dut", dut)
    program = [sys.executable, "-m", "bitcube", "diff", "golden.npy", "dut.npy", "--format", "e4m3"]
    text = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    alone = bitcube.diff(golden, dut, "e4m3")
    assert alone.diagnoses[0].certainty == "hint"
    assert text.split("\n", 1)[1] == str(alone).split("\n", 1)[1]


def test_quantised_tensors(weights):
    golden = bitcube.quantize(weights, "hif4", axis=0)
    assert not bitcube.diff(golden, golden, source=weights)
    dut = bitcube.quantize(weights, "hif4", axis=0, profile="pto-a6")
    d = bitcube.diff(golden, dut, source=weights)
    assert d.diagnoses[0].ids == ("tie-rule", )
    assert [p["name"] for p in d.parts] == ["codes", "scales"]
    with pytest.raises(ValueError, match="golden is hif4"):
        bitcube.diff(golden, bitcube.quantize(weights, "mxfp4", axis=0))


def test_products(weights):
    x = (np.load(DATA / "images.npy")[:32] / np.float32(255)).astype(np.float32)
    bias = np.load(DATA / "b0.npy")
    a, b = bitcube.quantize(x, "hif4", axis=1), bitcube.quantize(weights, "hif4", axis=0)
    golden = bitcube.matmul(a, b, bias, relu=True, pre_quant="QF322B8_PRE", scale=8).d
    dut = bitcube.matmul(a, b, relu=True, pre_quant="QF322B8_PRE", scale=8).d
    d = bitcube.diff(golden, dut, a=a, b=b, bias=bias, relu=True, pre_quant="QF322B8_PRE", scale=8)
    assert d.golden_faults == 0
    assert d.diagnoses[0].ids == ("bias-missing", )


def test_packed_lanes():
    golden = np.arange(64, dtype=np.uint8)
    dut = (golden << 4) | (golden >> 4)
    d = bitcube.diff(golden, dut, "e2m1", shape=(4, 32))
    assert d.diagnoses[0].ids == ("nibble-order", )
    assert d.parts[0]["shape"] == [4, 32]


def test_tolerances():
    golden = np.float32([1, 2, 3])
    dut = np.nextafter(golden, np.float32(9))
    d = bitcube.diff(golden, dut, ulps=1)
    assert d.mismatches == 3 and not d.equal and d.passes
    assert not bitcube.diff(golden, dut + np.float32(1), rtol=0.1, atol=0.1).passes


def test_sources_that_were_rounded_first(weights):
    golden = bitcube.quantize(weights, "mxfp8-e4m3", axis=0, source_type="bf16")
    dut = bitcube.quantize(weights, "mxfp8-e4m3", axis=0, source_type="bf16", scale="rceil")
    for source_type in (None, "bf16"):
        d = bitcube.diff(golden, dut, source=weights, source_type=source_type)
        assert d.golden_faults == 0
        assert d.diagnoses[0].ids == ("scale-rule", ) and not d.diagnoses[0].in_golden
    assert bitcube.diff(golden, dut, source=weights, source_type="fp32").golden_faults > 0


def test_the_fault_of_golden():
    images = np.load(DATA / "images.npy")
    golden, _ = bitcube.convert(images, to="e4m3", rounding="RNA")
    d = bitcube.diff(golden, bitcube.convert(images, to="e4m3")[0], "e4m3", from_array=images)
    assert d.diagnoses[0].in_golden and d.diagnoses[0].ids == ("tie-rule", )


def test_what_would_be_ignored():
    x = np.float32([1, 2, 3, 4])
    for argument in ({"bias": x}, {"relu": True}, {"scale": 2}, {"a_type": "bf16"}, {"accumulate": "exact"},
                     {"from_": "fp32"}, {"source_type": "bf16"}, {"rounding": "RNA"}, {"saturate": True},
                     {"profile": "ocp"}):
        with pytest.raises(ValueError, match=f"{next(iter(argument))}: it belongs to"):
            bitcube.diff(x, x, **argument)
    with pytest.raises(ValueError, match="dut: int32 of shape"):
        bitcube.diff(x, x.view(np.int32))
    assert not bitcube.diff(x, x.view(np.int32), "fp32")


def test_errors():
    x = np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="dut: float32 of shape"):
        bitcube.diff(x, x[:3])
    with pytest.raises(TypeError, match="carrier|bits"):
        bitcube.diff(x, x, "e4m3")
    with pytest.raises(ValueError, match="needs both"):
        bitcube.diff(x, x, a=np.zeros((2, 2), np.float32))
    with pytest.raises(ValueError, match="give those of one"):
        bitcube.diff(x, x, from_array=x, a=x, b=x)
    with pytest.raises(ValueError, match="from_array: shape"):
        bitcube.diff(x, x, from_array=x[:2])
    with pytest.raises(TypeError, match="another one"):
        bitcube.diff(bitcube.quantize(np.ones((2, 64), np.float32), "hif4"), x)
