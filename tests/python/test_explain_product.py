"""explain_matmul and explain_postprocess: the same text and JSON as the program, and results that are the library's."""

import subprocess

import bitcube
import numpy as np
import pytest
from conftest import any_bits


def said(program, *arguments):
    """The text of `bitcube ARGUMENTS`."""
    return subprocess.run([program.path, *map(str, arguments)], cwd=program.directory, capture_output=True, text=True,
                          check=True).stdout


def test_product_is_that_of_the_program(program, rng):
    x = (rng.standard_normal((3, 70))).astype(np.float32)
    w = (rng.standard_normal((70, 5))).astype(np.float32)
    bias = rng.standard_normal(5).astype(np.float32)
    c = rng.standard_normal((3, 5)).astype(np.float32)
    files = [program.save(f"{name}.npy", array) for name, array in (("x", x), ("w", w), ("bias", bias), ("c", c))]
    command = ["explain", "matmul", *files[:2], "--bias", files[2], "--c", files[3], "--at", "2,4", "--accumulate",
               "group", "--pre-quant", "QF322B8_PRE", "--scale", 4, "--offset", 7, "--sat", "--relu-param", 0.25,
               "--row-max", "r.npy", "--group-max", "8:g.npy", "--max-abs"]
    arguments = {"accumulate": "group", "pre_quant": "QF322B8_PRE", "scale": 4, "offset": 7, "saturate": True,
                 "relu_param": 0.25, "row_max": True, "group_max": 8, "max_abs": True}
    for steps in (False, True):
        e = bitcube.explain_matmul(x, w, (2, 4), bias, c, steps=steps, **arguments)
        flag = ["--steps"] if steps else []
        assert e.to_dict() == program.run(*command, *flag)
        assert str(e) == said(program, *command, *flag)
    r = bitcube.matmul(x, w, bias, c, **arguments)
    assert e.results[-1]["name"] == "D(2,4)"
    assert int(e.results[-1]["value"], 16) == int(r.d[2, 4]) & 0xFF
    assert int(e.results[1]["value"], 16) == int(r.row_max.view(np.uint32)[2, 0])
    assert e.result == e.results[-1]["value"] and e.sections[0]["title"] == "Operands"


def test_quantised_operands(rng):
    x = bitcube.quantize(rng.standard_normal((2, 130)).astype(np.float32), "hif4", axis=1)
    w = bitcube.quantize(rng.standard_normal((130, 3)).astype(np.float32), "hif4", axis=0)
    d = bitcube.matmul(x, w).d
    for i in range(2):
        for j in range(3):
            e = bitcube.explain_matmul(x, w, (i, j))
            assert int(e.results[-1]["value"], 16) == int(d.view(np.uint32)[i, j])


def test_stored_accumulators(program, rng):
    acc = any_bits(rng, np.float32, (4, 6))
    name = program.save("acc.npy", acc)
    r = bitcube.postprocess(acc, "QF322FP8_PRE", scale=0.5)
    for i, j in ((0, 0), (3, 5), (1, 2)):
        e = bitcube.explain_postprocess(acc, (i, j), "QF322FP8_PRE", scale=0.5)
        assert int(e.results[-1]["value"], 16) == int(r.d[i, j])
        assert e.to_dict() == program.run("explain", "postprocess", name, "--at", f"{i},{j}", "--pre-quant",
                                          "QF322FP8_PRE", "--scale", "0.5")
    assert bitcube.explain_postprocess(acc[0], (0, 1)).results[-1]["name"] == "D(0,1)"


def test_what_is_refused():
    a = np.ones((2, 3), np.float32)
    b = np.ones((3, 4), np.float32)
    with pytest.raises(ValueError, match="element 2,0: D is 2 x 4, so rows are 0 to 1 and columns 0 to 3"):
        bitcube.explain_matmul(a, b, (2, 0))
    with pytest.raises(ValueError, match="element 0,4"):
        bitcube.explain_postprocess(b, (0, 4))
    for at in (1, (1,), (1, 2, 3), "12", None):
        with pytest.raises(TypeError, match="at"):
            bitcube.explain_matmul(a, b, at)
    for at in ((-1, 0), (0, 1 << 70)):
        with pytest.raises(ValueError, match="at"):
            bitcube.explain_matmul(a, b, at)
    with pytest.raises(ValueError, match="B: 2 rows, but A has K = 3"):
        bitcube.explain_matmul(a, a, (0, 0))
    with pytest.raises(TypeError, match="float64"):
        bitcube.explain_postprocess(np.ones((2, 2)), (0, 0))
