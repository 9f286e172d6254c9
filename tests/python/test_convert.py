"""convert() against the program, over dtypes, layouts and formats."""

import types

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

import bitcube
from conftest import any_bits, flag_list, same

NATIVE = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "int64": "s64", "int32": "s32", "int16": "s16",
          "int8": "s8", "uint64": "u64", "uint32": "u32", "uint16": "u16", "uint8": "u8"}
CODES = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
FORMATS = {f.name: f for f in bitcube.formats()}


def both(program, x, to, rounding=None, saturate=False, profile="pto", from_=None):
    """Converts with both and compares bytes and flags."""
    arguments = ["convert", program.save("x.npy", x), "--to", to, "--profile", profile, "-o", "y.npy"]
    arguments += ["--round", rounding] if rounding else []
    arguments += ["--sat"] if saturate else []
    arguments += ["--from", from_] if from_ else []
    report = program.run(*arguments)
    bits, flags = bitcube.convert(x, to, rounding, saturate, profile, from_)
    same(bits, program.load("y.npy"))
    assert flag_list(flags) == report["flags"]
    assert isinstance(flags, bitcube.Flags)
    return bits, flags


@pytest.mark.parametrize("dtype", NATIVE)
def test_every_dtype_to_everything_it_converts_to(program, rng, dtype):
    x = any_bits(rng, dtype, (3, 67))
    converted = 0
    for to in FORMATS:
        try:
            bitcube.convert(x[:0], to)
        except ValueError as refused:
            assert "does not convert" in str(refused)
            continue
        both(program, x, to, saturate=bool(converted % 2), profile=("pto", "asl", "ocp")[converted % 3])
        converted += 1
    assert converted >= 16


@pytest.mark.parametrize("from_", FORMATS)
def test_codes_of_every_format(program, rng, from_):
    f = FORMATS[from_]
    x = rng.integers(0, 2**f.lane_bits, (97, ), dtype=CODES[f.carrier_bits])
    for to in ("bf16", "fp16"):
        both(program, x, to, from_=from_)


def test_every_rounding_profile_and_saturation(program, rng):
    x = any_bits(rng, "float32", (500, ))
    seen = set()
    for rounding in bitcube.choices()["rounding"]:
        for profile in bitcube.choices()["profile"]:
            for saturate in (False, True):
                seen.add(both(program, x, "e4m3", rounding.lower(), saturate, profile.upper())[0].tobytes())
    assert len(seen) > 10  # the arguments arrive


def test_default_rounding_is_that_of_the_operation():
    assert bitcube.convert([1.75, -1.75], "s8")[0].tolist() == [1, -1]
    assert bitcube.convert([1.75, -1.75], "s8", "rne")[0].tolist() == [2, -2]


@given(x=hnp.arrays(dtype=st.sampled_from(["float32", "float64", "float16", "int32", "int16", "uint8"]),
                    shape=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)),
       to=st.sampled_from(["fp32", "bf16", "fp16", "hif8", "e4m3", "e5m2", "s8", "u16"]),
       swap=st.booleans(), layout=st.sampled_from(["c", "f", "strided", "reversed", "transposed", "read-only"]))
def test_layout_and_byte_order_change_nothing(x, to, swap, layout):
    want, want_flags = bitcube.convert(np.array(x), to)
    if swap:
        x = x.astype(x.dtype.newbyteorder(">"))
    if layout == "f":
        x = np.asarray(x, order="F")
    elif layout == "strided":
        x = np.repeat(x, 2, axis=-1)[..., ::2] if x.ndim else x
    elif layout == "reversed":
        x = np.array(x[::-1])[::-1] if x.ndim else x
    elif layout == "transposed":
        x = np.array(x.T).T
    elif layout == "read-only":
        x = x.copy()
        x.flags.writeable = False
    before = x.tobytes()
    got, flags = bitcube.convert(x, to)
    same(got, want)
    assert flags == want_flags and got.shape == x.shape
    assert x.tobytes() == before and got.flags.c_contiguous and got.flags.writeable


@given(st.integers(0, 2**16 - 1))
def test_round_trip_through_a_wider_format(word):
    x = np.array(word, np.uint16)
    wide, _ = bitcube.convert(x, "fp32", from_="bf16")
    assert wide.shape == ()
    if not np.isnan(wide):
        assert bitcube.convert(wide, "bf16")[0] == word


def check_bfloat16(x, bits):
    same(bitcube.convert(x, "e4m3")[0], bitcube.convert(bits, "e4m3", from_="bf16")[0])
    assert bitcube.quantize(x, "hif4").source == "BF16"
    same(bitcube.matmul(x, bits, b_type="bf16").d, bitcube.matmul(bits, bits, a_type="bf16", b_type="bf16").d)


def test_bfloat16_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.arange(-8, 8, 0.5).astype(ml_dtypes.bfloat16)[:25].reshape(5, 5)[::-1]
    check_bfloat16(x, x.view(np.uint16))


def test_bfloat16_by_the_name_of_its_dtype(monkeypatch):
    """The same where ml_dtypes is not installed: an array whose dtype says what that of ml_dtypes says."""

    class Bfloat16:

        def __init__(self, bits):
            self.dtype, self.bits = types.SimpleNamespace(name="bfloat16"), bits

        def view(self, dtype):
            return self.bits.view(dtype)

    real = np.asarray
    monkeypatch.setattr(np, "asarray", lambda x, *a, **k: x if isinstance(x, Bfloat16) else real(x, *a, **k))
    bits = bitcube.convert(np.arange(25, dtype=np.float32).reshape(5, 5)[::-1], "bf16")[0]
    check_bfloat16(Bfloat16(bits), bits)


def test_scalars_and_lists():
    bits, flags = bitcube.convert(1.0625, to="e4m3", profile="ocp")
    assert bits.shape == () and bits == 0x38 and flags == bitcube.Flags.NX
    assert bitcube.convert([[1, 2], [3, 4]], "fp16")[0].tolist() == [[1, 2], [3, 4]]
    assert bitcube.convert(np.zeros((0, 3)), "hif8")[0].shape == (0, 3)


def test_threads_change_nothing(rng):
    x = any_bits(rng, "float32", (200_000, ))
    same(bitcube.convert(x, "hif8", threads=1)[0], bitcube.convert(x, "hif8", threads=2)[0])


@pytest.mark.parametrize("arguments, error, message", [
    ((1.0, "e4m4"), ValueError, "to: no such thing as 'e4m4'; choose from FP64, FP32"),
    ((1.0, "e4m3", "up"), ValueError, "rounding: no such thing as 'up'; choose from RNE"),
    ((1.0, "e4m3", None, False, "ieee"), ValueError, "profile: no such thing as 'ieee'; choose from pto, asl, ocp"),
    ((np.float64(1), "e2m1"), ValueError, "FP64 does not convert to E2M1X2"),
    ((np.float32(1), "e6m2"), ValueError, "FP32 does not convert to E6M2"),
    ((np.float16(1), "e6m2", "rtz"), ValueError, "FP16 to E6M2: only RNE and RNA, not RTZ"),
    ((np.float32(1), "e4m3", None, False, "pto", "bf16"), TypeError,
     "from_: float32 elements have 32 bits, but a lane of BF16 has 16 in memory"),
    ((np.array([3, 16], np.uint8), "fp32", None, False, "pto", "e2m1"), ValueError,
     "x: element 1 is 0x10, beyond a lane of E2M1X2"),
    (("1.0", "e4m3"), TypeError, "x: str"),
    ((1j, "e4m3"), TypeError, "x: complex128 elements; accepted are"),
    ((True, "e4m3"), TypeError, "x: bool elements"),
    (([object()], "e4m3"), TypeError, "x: object elements"),
    ((1.0, 7), TypeError, "to: a str, not int"),
    ((1.0, "e4m3", 1), TypeError, "rounding: a str, not int"),
])
def test_errors(arguments, error, message):
    with pytest.raises(error) as caught:
        bitcube.convert(*arguments)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("threads, error", [(-1, ValueError), (2**40, ValueError), (1.5, TypeError), ("2", TypeError)])
def test_threads_must_be_a_count(threads, error):
    with pytest.raises(error):
        bitcube.convert(1.0, "e4m3", threads=threads)
