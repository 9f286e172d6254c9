"""quantize(), dequantize() and files against the program."""

import gc
import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

import bitcube
from conftest import any_bits, flag_list, same

BLOCKS = {f.name: f for f in bitcube.block_formats()}


def both(program, x, format, axis=-1, **options):
    """Quantises with both and compares the files byte for byte, which hold everything, and the errors."""
    names = {"profile": "--profile", "scale": "--scale", "rounding": "--round", "source_type": "--source-type",
             "from_": "--source-type"}
    arguments = ["quantize", program.save("x.npy", x), "--format", format, "--axis", axis, "--name", "t", "-o",
                 "want.safetensors"]
    for key, value in options.items():
        arguments += ["--tensor-scale"] if key == "tensor_scale" else [names[key], value]
    report = program.run(*arguments)
    q = bitcube.quantize(x, format, axis, **options)
    q.save(program.directory / "got.safetensors", "t")
    want = (program.directory / "want.safetensors").read_bytes()
    assert (program.directory / "got.safetensors").read_bytes() == want
    assert q.nbytes == report["bytes"]["codes"] + report["bytes"]["scales"] == q.codes.nbytes + q.scales.nbytes
    return q, report["error"]


@pytest.mark.parametrize("format", BLOCKS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint16"])
def test_every_format_and_dtype(program, rng, format, dtype):
    for shape, axis in (((5, 70), -1), ((70, 5), 0), ((3, 33, 4), 1), ((130, ), 0)):
        x = any_bits(rng, dtype, shape)
        q, _ = both(program, x, format, axis)
        assert q.shape == shape and q.axis == axis % len(shape) and q.format == format
        block = BLOCKS[format]
        others = [n for i, n in enumerate(shape) if i != q.axis]
        k = shape[q.axis]
        assert q.scales.shape == (*others, -(-k // block.group))
        assert q.codes.shape == (*others, k if block.element in ("E4M3", "E5M2", "E3M2", "E2M3") else -(-k // 2))


def test_every_choice(program, rng):
    x = any_bits(rng, "float32", (4, 100))
    x[~np.isfinite(x)] = 1
    for profile in bitcube.choices()["hif4_profile"]:
        assert both(program, x, "hif4", profile=profile)[0].profile == profile
    for scale, rounding in itertools.product(bitcube.choices()["scale"], bitcube.choices()["rounding"]):
        q, _ = both(program, x, "mxfp4", scale=scale, rounding=rounding)
        assert (q.scale_rule, q.rounding) == (scale, rounding)
    q, _ = both(program, x, "nvfp4", tensor_scale=True)
    assert q.tensor_scale == np.float32(np.abs(x).max() / 2688)
    assert both(program, x, "hif4", source_type="bf16")[0].source == "BF16"
    assert both(program, rng.integers(0, 256, (4, 64), np.uint8), "hif4", from_="e5m2")[0].source == "E5M2"


def test_error_report(program, rng):
    x = rng.standard_normal((20, 64)).astype(np.float32)
    x[0, :3] = 0, np.nan, np.inf
    q, want = both(program, x, "mxfp8-e4m3")
    e = q.error(np.asfortranarray(x))
    assert (e.lanes, e.non_finite) == (want["lanes"], want["non_finite"]) == (1280, e.non_finite)
    assert e.non_finite >= 2 and e.non_zero == want["non_zero"]
    got = (e.max_relative_error, e.mean_relative_error, e.max_absolute_error, e.mean_squared_error, e.sqnr)
    assert got == tuple(want[k] for k in ("max_relative", "mean_relative", "max_absolute", "mse", "sqnr_db"))


@pytest.mark.parametrize("format", BLOCKS)
def test_dequantize(program, rng, format):
    q = bitcube.quantize(any_bits(rng, "float32", (6, 65)), format)
    q.save(program.directory / "q.safetensors")
    for (name, dtype), rounding in itertools.product(
        (("fp32", "float32"), ("fp64", np.float64), ("fp16", np.dtype("f2")), ("bf16", "bf16")), (None, "RTM")):
        arguments = ["--round", rounding] if rounding else []
        report = program.run("dequantize", "q.safetensors", "--to", name, "-o", "y.npy", *arguments)
        y, flags = q.dequantize_with_flags(dtype, rounding)
        same(y, program.load("y.npy"))
        same(q.dequantize(dtype, rounding, threads=1), y)
        assert flag_list(flags) == report["flags"]


@given(hnp.arrays("float32", hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=9),
                  elements=st.floats(-4, 4, width=32)), st.sampled_from(sorted(BLOCKS)), st.data())
def test_values_that_a_format_has_are_kept(x, format, data):
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    q = bitcube.quantize(x, format, axis)
    y = q.dequantize()
    assert y.shape == x.shape
    again = bitcube.quantize(np.asfortranarray(y), format, axis).dequantize("float64")
    if format in ("mxfp8-e5m2", "mxfp4"):
        assert np.array_equal(again, y)
    if x.size:
        assert np.abs(y - x).max() <= np.abs(x).max() / 2


def test_files(program, rng):
    x = any_bits(rng, "float32", (3, 50))
    q = bitcube.quantize(x, "hif4")
    path = program.directory / "file.safetensors"
    q.save(path, "weights")
    assert bitcube.names(path) == ["weights"]
    for loaded in (bitcube.load(path), bitcube.load(str(path), "weights")):
        same(loaded.codes, q.codes)
        same(loaded.scales, q.scales)
        assert repr(loaded) == repr(q) == \
            "QuantizedTensor('hif4', shape=(3, 50), axis=1, profile='pto', nbytes=87)"
    with pytest.raises(ValueError, match="no packed tensor|no tensor|biases"):
        bitcube.load(path, "biases")
    with pytest.raises(ValueError, match="No such file"):
        bitcube.load(program.directory / "missing")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="file.safetensors"):
        bitcube.load(path)
    with pytest.raises(TypeError):
        bitcube.load(7)


def test_views_keep_the_tensor_and_cannot_change_it():
    codes = bitcube.quantize(np.ones((1, 64), np.float32), "hif4").codes
    gc.collect()
    junk = [bytearray(32) for _ in range(100)]
    assert codes.tolist() == bitcube.quantize(np.ones((1, 64), np.float32), "hif4").codes.tolist() and junk
    assert not codes.flags.writeable
    with pytest.raises(ValueError):
        codes[0] = 0
    with pytest.raises(ValueError):
        codes.setflags(write=True)


@pytest.mark.parametrize("x, options, error, message", [
    (np.ones(4), {"format": "hif5"}, ValueError, "format: no such thing as 'hif5'; choose from hif4, mxfp8-e4m3"),
    (np.ones(4), {"format": "hif4", "axis": 1}, ValueError, "axis: 1 is outside of shape (4,); it goes from -1 to 0"),
    (np.ones(4), {"format": "hif4", "axis": -2}, ValueError, "axis: -2 is outside"),
    (np.ones(4), {"format": "hif4", "axis": 0.5}, TypeError, "axis: an int, not float"),
    (np.float32(1), {"format": "hif4"}, ValueError, "x: a scalar, which has no axis"),
    (np.ones(4), {"format": "hif4", "scale": "floor"}, ValueError, "scale: hif4 has none; it is for the MX formats"),
    (np.ones(4), {"format": "mxfp4", "profile": "pto"}, ValueError, "profile: mxfp4 has none; it is for hif4"),
    (np.ones(4), {"format": "mxfp4", "tensor_scale": True}, ValueError, "tensor_scale: mxfp4 has none"),
    (np.ones(4), {"format": "hif4", "rounding": "RTZ"}, ValueError, "rounding: the rounding of hif4 belongs to its"),
    (np.ones(4), {"format": "hif4", "profile": "best"}, ValueError, "profile: no such thing as 'best'"),
    (np.ones(4, int), {"format": "hif4"}, TypeError, "x: int64 elements; accepted are float16"),
    (np.ones(4, np.uint8), {"format": "hif4"}, TypeError, "x: uint8 elements; accepted are"),
    (np.ones(4, np.uint8), {"format": "hif4", "from_": "bf16"}, TypeError, "from_: uint8 elements have 8 bits"),
    (np.ones(4, np.uint8), {"format": "hif4", "from_": "s8"}, TypeError, "x: uint8 elements"),
    (np.ones(4), {"format": "hif4", "source_type": "e2m1"}, ValueError, "FP64 does"),
    (np.ones(4, bool), {"format": "hif4"}, TypeError, "x: bool elements"),
])
def test_errors(x, options, error, message):
    with pytest.raises(error) as caught:
        bitcube.quantize(x, **options)
    assert str(caught.value).startswith(message)


def test_errors_of_a_tensor():
    q = bitcube.quantize(np.ones((2, 64), np.float32), "hif4")
    with pytest.raises(ValueError, match="dtype: int8; accepted are"):
        q.dequantize("int8")
    with pytest.raises(ValueError, match="dtype: int32; accepted are"):
        q.dequantize(np.int32)
    with pytest.raises(ValueError, match="original: shape"):
        q.error(np.ones((64, 2), np.float32))
    with pytest.raises(TypeError, match="original: float64, but the tensor was quantised from FP32"):
        q.error(np.ones((2, 64)))
    with pytest.raises(ValueError, match="no/such"):
        q.save("no/such/directory.safetensors")
    with pytest.raises(TypeError, match="comes from"):
        bitcube.QuantizedTensor()


def test_a_path_with_a_nul_names_no_other_file(tmp_path):
    tensor = bitcube.quantize(np.ones(64, np.float32), "hif4")
    for call in (tensor.save, bitcube.load, bitcube.names, bitcube.Program.load):
        with pytest.raises(ValueError, match="NUL"):
            call(str(tmp_path / "a\0b"))
    assert not (tmp_path / "a").exists()
