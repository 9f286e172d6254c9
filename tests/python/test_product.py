"""matmul() and postprocess() against the program."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

import bitcube
from conftest import any_bits, flag_list, same

MODES = bitcube.choices()["mode"]


def carrier(rng, shift):
    """A legal carrier word."""
    if shift:
        return int(rng.integers(0, 16)) << 32
    return int(rng.integers(0x1F000, 0x20400)) << 13  # from 2^-4 to 2 * 2


def accumulators_of(mode):
    """The dtypes that a mode takes, which its name says."""
    if mode == "NoQuant":
        return ["float32", "int32", "uint32"]
    return ["float32"] if "F322" in mode.replace("S322", "") else ["int32"]


def post_arguments(program, rng, mode, cols):
    """Random parameters of a mode, for the program and for Python."""
    flags, options = [], {}
    per_column = mode.startswith("V")
    shift = "SHIFT" in mode
    if mode not in ("NoQuant", "F322F16", "F322BF16"):
        if per_column:
            words = np.array([carrier(rng, shift) for _ in range(cols)], np.uint64)
            flags += ["--quant-params", program.save("q.npy", words)]
            options["quant_params"] = words if rng.random() < 0.5 else words.reshape(1, -1)
        elif shift or rng.random() < 0.3:
            word = carrier(rng, shift)
            flags += ["--scale", hex(word)]
            options["quant_params"] = word
        else:
            scale = float(rng.integers(1, 1000)) / 1024
            flags += ["--scale", repr(scale)]
            options["scale"] = scale if rng.random() < 0.5 else np.float32(scale)
            if mode in ("REQ8", "QF322B8_PRE", "REQ4", "DEQS16"):
                offset = int(rng.integers(-8, 8))
                flags += [f"--offset={offset}"]
                options["offset"] = offset
    relu = rng.integers(0, 4) if not shift else 0
    if relu == 1:
        flags += ["--relu"]
        options["relu"] = True
    elif relu == 2:
        flags += ["--relu-param", "0.375"]
        options["relu_param"] = 0.375
    elif relu == 3:
        alphas = rng.integers(0, 64, cols) / 64
        words = np.array([int(np.float32(a).view(np.uint32)) >> 13 for a in alphas], np.uint64)
        flags += ["--relu-param", program.save("alphas.npy", words)]
        options["relu_param"] = words if rng.random() < 0.5 else alphas
    if mode not in ("NoQuant", "VSHIFTS322S16", "SHIFTS322S16") and rng.random() < 0.5:
        flags += ["--sat"]
        options["saturate"] = True
    profile = str(rng.choice(bitcube.choices()["profile"]))
    flags += ["--profile", profile]
    options["profile"] = profile
    return flags, options


def compare(program, report, result, extra=()):
    same(result.d, program.load("d.npy"))
    assert flag_list(result.flags) == report["flags"]
    for name in ("row_max", "group_max"):
        if name in extra:
            same(getattr(result, name), program.load(name + ".npy"))
        else:
            assert getattr(result, name) is None


@pytest.mark.parametrize("mode", MODES)
def test_every_mode(program, rng, mode):
    for dtype in accumulators_of(mode):
        for _ in range(4):
            acc = any_bits(rng, dtype, (int(rng.integers(1, 9)), int(rng.integers(1, 40))))
            if rng.random() < 0.5 and dtype != "float32":
                acc //= 2**20
            flags, options = post_arguments(program, rng, mode, acc.shape[1])
            report = program.run("postprocess", program.save("acc.npy", acc), "--pre-quant", mode, "-o", "d.npy",
                                 *flags)
            compare(program, report, bitcube.postprocess(np.asfortranarray(acc), mode, **options))


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint32"])
def test_reductions(program, rng, dtype):
    acc = any_bits(rng, dtype, (7, 50))
    init = any_bits(rng, dtype, (7, 1))
    for flags, options in (([], {}), (["--max-abs"], {"max_abs": True}),
                           (["--row-max-init", program.save("init.npy", init)], {"row_max_init": init})):
        report = program.run("postprocess", program.save("acc.npy", acc), "-o", "d.npy", "--row-max", "row_max.npy",
                             "--group-max", "16:group_max.npy", *flags)
        result = bitcube.postprocess(acc, row_max=True, group_max=16, **options)
        compare(program, report, result, ("row_max", "group_max"))
        assert result.row_max.shape == (7, 1) and result.group_max.shape == (7, 4)


def test_packed_and_extended_lanes(program, rng):
    acc = rng.integers(-1000, 1000, (4, 7), dtype=np.int32)
    for packed in (False, True):
        report = program.run("postprocess", program.save("acc.npy", acc), "--pre-quant", "REQ4", "--scale", "0.0078125",
                             "-o", "d.npy", *(["--packed"] if packed else []))
        result = bitcube.postprocess(acc, "REQ4", scale=1 / 128, packed=packed)
        compare(program, report, result)
        assert result.d.shape == (4, 4 if packed else 7)


def test_names_codes_and_columns_of_numbers():
    acc = np.arange(-8, 8, dtype=np.int32).reshape(2, 8)
    same(bitcube.postprocess(acc, 3, scale=2).d, bitcube.postprocess(acc, "req8", scale=2.0).d)
    same(bitcube.postprocess(acc[0], np.int64(3), scale=2).d, bitcube.postprocess(acc[:1], "REQ8", scale=2).d)
    column = bitcube.postprocess(acc, "VREQ8", scale=np.arange(1, 9), offset=np.arange(8)).d
    assert column.tolist() == (acc * np.arange(1, 9) + np.arange(8)).tolist()
    assert bitcube.postprocess(acc, "VREQ8", scale=[1] * 8, offset=3).d.tolist() == (acc + 3).tolist()
    assert bitcube.postprocess(acc, "SHIFTS322S16", shift=1).d.tolist() == (acc >> 1).tolist()
    shifts = np.arange(1, 9)
    assert bitcube.postprocess(acc, "VSHIFTS322S16", shift=shifts).d.tolist() == (acc >> shifts).tolist()
    assert bitcube.postprocess(acc, "VREQ8", scale=np.ones((1, 8)), relu_param=np.zeros(8)).d.min() == 0


@given(st.floats(2**-30, 2**30))
def test_scales_are_rounded_once_to_fp19(scale):
    """The exact double, rounded to 10 bits of fraction by other means."""
    exponent = np.floor(np.log2(scale))
    unit = 2.0**(exponent - 10)
    want = np.rint(scale / unit) * unit
    got = bitcube.postprocess(np.ones((1, 1), np.float32), "QF322F32_PRE", scale=scale).d
    assert got[0, 0] == want


PAIRS = [("float32", "float32"), ("float16", "float16"), ("uint16:bf16", "uint16:bf16"), ("int8", "int8"),
         ("int16", "int16"), ("uint8", "uint8"), ("uint16", "uint16"), ("uint8:e4m3", "uint8:e5m2"),
         ("uint8:hif8", "uint8:hif8"), ("int8:s4", "int8:s4"), ("uint32:tf32", "uint32:tf32")]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: "x".join(p))
def test_products_of_arrays(program, rng, pair):
    for accumulate in bitcube.choices()["accumulate"]:
        m, k, n = (int(rng.integers(1, 20)) for _ in range(3))
        sides, flags, options = [], ["--accumulate", accumulate], {"accumulate": accumulate}
        for letter, what, shape in (("a", pair[0], (m, k)), ("b", pair[1], (k, n))):
            dtype, _, type_ = what.partition(":")
            x = any_bits(rng, dtype, shape)
            if type_ == "s4":
                x = rng.integers(-8, 8, shape, dtype=np.int8)
            if type_ == "tf32":
                x &= np.uint32(0xFFFFE000)
            if type_:
                flags += [f"--{letter}-type", type_]
                options[f"{letter}_type"] = type_
            program.save(letter + ".npy", x)
            sides.append(np.asfortranarray(x))
        acc = bitcube.matmul(*sides, **options).d.dtype
        if accumulate in ("fma", "exact"):
            c, bias = any_bits(rng, acc, (m, n)), any_bits(rng, acc, (n, ))
            flags += ["--c", program.save("c.npy", c), "--bias", program.save("bias.npy", bias)]
            options.update(c=c, bias=bias if rng.random() < 0.5 else bias.reshape(1, n))
        report = program.run("matmul", "a.npy", "b.npy", "-o", "d.npy", *flags)
        compare(program, report, bitcube.matmul(*sides, **options))


@pytest.mark.parametrize("format", ["hif4", "mxfp8-e4m3", "mxfp4", "mxfp4-e1m2"])
def test_products_of_quantised_tensors(program, rng, format):
    for k in (64, 77):
        a = bitcube.quantize(rng.standard_normal((9, k)).astype(np.float32), format, 1)
        b = bitcube.quantize(rng.standard_normal((k, 12)).astype(np.float32), format, 0)
        a.save(program.directory / "a.safetensors")
        b.save(program.directory / "b.safetensors")
        bias = rng.standard_normal(12).astype(np.float32)
        report = program.run("matmul", "a.safetensors", "b.safetensors", "--bias", program.save("bias.npy", bias),
                             "--pre-quant", "QF322B8_PRE", "--scale", "4", "--offset", "-3", "--sat", "--relu",
                             "--row-max", "row_max.npy", "-o", "d.npy")
        result = bitcube.matmul(a, b, bias, pre_quant="QF322B8_PRE", scale=4, offset=-3, saturate=True, relu=True,
                                row_max=True, threads=1)
        compare(program, report, result, ("row_max", ))


def test_scales_of_arrays(program, rng):
    a, b = rng.integers(0, 16, (5, 64), np.uint8), rng.integers(0, 16, (64, 6), np.uint8)
    sa, sb = rng.integers(120, 134, (5, 2), np.uint8), rng.integers(120, 134, (2, 6), np.uint8)
    for name, x in (("a", a), ("b", b), ("sa", sa), ("sb", sb)):
        program.save(name + ".npy", x)
    report = program.run("matmul", "a.npy", "b.npy", "--a-type", "e2m1", "--b-type", "e1m2", "--a-scales", "sa.npy",
                         "--b-scales", "sb.npy", "--accumulate", "group", "-o", "d.npy")
    result = bitcube.matmul(a, b, a_type="e2m1", b_type="e1m2", a_scales=np.asfortranarray(sa), b_scales=sb[:, ::1],
                            accumulate="group")
    compare(program, report, result)
    # The words of a HiF4 tensor, taken apart, are the tensor.
    q = bitcube.quantize(rng.standard_normal((3, 64)).astype(np.float32), "hif4", 1)
    w = bitcube.quantize(rng.standard_normal((64, 4)).astype(np.float32), "hif4", 0)
    lanes = np.stack([q.codes & 15, q.codes >> 4], -1).reshape(3, 64)
    same(bitcube.matmul(lanes, w, a_type="hif4", a_scales=q.scales).d, bitcube.matmul(q, w).d)


F = np.ones((2, 3), np.float32)
Q = bitcube.quantize(np.ones((4, 64), np.float32), "hif4")


@pytest.mark.parametrize("arguments, options, error, message", [
    ((F, F), {}, ValueError, ""),
    ((F, F.T), {"accumulate": "best"}, ValueError, "accumulate: no such thing as 'best'; choose from fma, two-step"),
    ((F, F.T.astype(np.int8)), {}, ValueError, ""),
    ((F, F.T.astype(np.float64)), {}, TypeError, "b: float64 is no operand type; accepted are float32"),
    ((F[0], F.T), {}, ValueError, "a: an operand is a matrix of 2 dimensions, but this has shape (3,)"),
    ((F, F.T, np.ones(3, np.float32)), {}, ValueError, "bias: shape (3), but it must be (2) or (1, 2)"),
    ((F, F.T, [1.0, 2.0]), {}, TypeError, "bias: float64, but the accumulator is FP32, so it must be float32"),
    ((F, F.T), {"c": F}, ValueError, "c: shape (2, 3), but it must be (2, 2)"),
    ((F, F.T), {"a_type": "bf16"}, TypeError, "a_type: float32 elements have 32 bits"),
    ((Q, Q), {}, ValueError, "B: quantised along axis 1, but K of B is axis 0"),
    ((bitcube.quantize(F, "mxfp6-e3m2"), bitcube.quantize(F.T, "mxfp6-e3m2", 0)), {}, ValueError,
     "A: E3M2 is no operand of an MX product"),
    ((Q, F), {"a_type": "bf16"}, ValueError, "a_type: a is a quantised tensor, which says that itself"),
    ((Q, F), {"a_scales": F}, ValueError, "a_scales: a is a quantised tensor"),
    ((F.astype(np.uint8), F.T.astype(np.uint8)), {"a_type": "e2m1", "a_scales": np.ones((2, 1), np.int8)}, TypeError,
     "a_scales: the scales of E2M1X2 are uint8, one per 32 lanes of K, but these are int8"),
    ((F.astype(np.uint8), F.T.astype(np.uint8)), {"b_type": "e2m1", "b_scales": np.ones((2, 1), np.uint8)}, ValueError,
     "b_scales: shape (2, 1), but it must be (1, 2): one per 32 lanes of K"),
    ((np.full((2, 3), 16, np.uint8), F.T), {"a_type": "e2m1"}, ValueError, "a: element 0 is 0x10, beyond a lane of"),
    ((np.ones((2, 0), np.float32), np.ones((0, 2), np.float32)), {}, ValueError, ""),
    ((F, F.T), {"pre_quant": "REQ9"}, ValueError, "pre_quant: no such thing as 'REQ9'; choose from NoQuant"),
    ((F, F.T), {"pre_quant": "REQ8", "scale": 1}, ValueError, ""),
])
def test_errors_of_products(arguments, options, error, message):
    with pytest.raises(error) as caught:
        bitcube.matmul(*arguments, **options)
    assert str(caught.value).startswith(message) and str(caught.value)


@pytest.mark.parametrize("options, error, message", [
    ({"mode": 6}, ValueError, "mode: code 6 is reserved"),
    ({"mode": 64}, ValueError, "mode: 64 is outside of 0 to 63"),
    ({"mode": 1.0}, TypeError, "mode: a name or a code, not float"),
    ({"scale": 1}, ValueError, "scale: NoQuant takes none"),
    ({"mode": "REQ8"}, ValueError, "mode: REQ8 needs scale or quant_params"),
    ({"mode": "REQ8", "scale": "1"}, TypeError, "scale: real numbers, not str"),
    ({"mode": "REQ8", "scale": -1.0}, ValueError, "scale: -1 is no scale in FP19"),
    ({"mode": "REQ8", "scale": 1, "offset": 256}, ValueError, "offset: 256 does not fit the 9 bits of REQ8: from -256"),
    ({"mode": "REQ8", "scale": 1, "offset": 1.5}, TypeError, "offset: integers, not float64"),
    ({"mode": "REQ8", "scale": [1, 1]}, ValueError, "scale: REQ8 takes one for all columns"),
    ({"mode": "VREQ8", "scale": 1}, ValueError, "scale: VREQ8 takes one per column; use REQ8 for one for all"),
    ({"mode": "VREQ8", "scale": [1.0]}, ValueError, "scale: 1 numbers for 2 columns"),
    ({"mode": "VREQ8", "scale": []}, ValueError, "scale: 0 numbers for 2 columns"),
    ({"relu_param": [0.5]}, ValueError, "relu_param: 1 numbers for 2 columns"),
    ({"mode": "VREQ8", "scale": [1, 1], "offset": [1]}, ValueError, "offset: 1 numbers for 2 scales"),
    ({"mode": "REQ8", "quant_params": 1}, ValueError, ""),
    ({"mode": "REQ8", "quant_params": 2**64}, ValueError, "quant_params: 18446744073709551616 is outside"),
    ({"mode": "REQ8", "quant_params": 1, "offset": 1}, ValueError, "quant_params: carrier words have"),
    ({"mode": "SHIFTS322S16", "shift": 17}, ValueError, "shift: 17 is outside of 1 to 16"),
    ({"mode": "SHIFTS322S16", "scale": 1}, ValueError, "scale: SHIFTS322S16 takes none"),
    ({"relu": True, "relu_param": 0.5}, ValueError, "relu and relu_param are two activations; give one"),
    ({"relu_param": -1.0}, ValueError, ""),
    ({"relu_param": "1"}, TypeError, "relu_param: real numbers"),
    ({"mode": "REQ8", "scale": 1, "packed": True}, ValueError, "packed: REQ8 gives S8, which has one lane per word"),
    ({"group_max": 7}, ValueError, ""),
    ({"group_max": 0}, ValueError, "group_max: 0 columns"),
    ({"row_max": True, "row_max_init": np.zeros(3, np.int32)}, ValueError, "row_max_init: shape (3), but it must be"),
    ({"row_max": True, "row_max_init": np.zeros(2)}, TypeError, "row_max_init: float64, but the accumulator is S32"),
])
def test_errors_of_the_post_process(options, error, message):
    with pytest.raises(error) as caught:
        bitcube.postprocess(np.ones((2, 2), np.int32), **options)
    assert str(caught.value).startswith(message) and str(caught.value)


def test_a_product_without_lanes_is_none():
    for name in ("hif4", "mxfp8-e4m3"):
        a = bitcube.quantize(np.ones((4, 0), np.float32), name, axis=1)
        b = bitcube.quantize(np.ones((0, 5), np.float32), name, axis=0)
        with pytest.raises(ValueError, match="^M = 4, N = 5, K = 0: every dimension must be at least 1$"):
            bitcube.matmul(a, b)


def test_accumulators_must_be_accumulators():
    for x in (np.ones((2, 2)), np.ones((2, 2), np.int64), "x"):
        with pytest.raises(TypeError, match="acc: "):
            bitcube.postprocess(x)
    for x in (np.float32(1), np.ones((1, 1, 1), np.int32), np.ones((0, 3), np.int32)):
        with pytest.raises(ValueError, match="acc: shape"):
            bitcube.postprocess(x)
