"""What every public function says of a wrong argument: TypeError or ValueError, and the name of the argument."""

import copy
import inspect
import pickle
import typing

import bitcube
import numpy as np
import pytest
from bitcube import _bitcube

TEXT = ".byte 1"
HUGE = 10**400
WRONG = (None, 1.5, "x\udc80", "\ud800", "no such thing", "", b"x", object(), [], {}, float("nan"), 10**30, HUGE,
         -HUGE, -1, -2**63, 2**63, 2**64, 1j, np.datetime64(1, "s"), np.zeros((2, 2), "V3"), np.array([None]), slice(0),
         [[1], [2, 3]], np.ma.masked_array([1.0, 2.0], [True, False]), lambda: 0, type)
X = np.ones((4, 64), np.float32)
U8 = np.full((4, 64), 0x22, np.uint8)
ACC = np.ones((4, 8), np.int32)
Q = bitcube.quantize(X, "hif4", axis=1)


def machine():
    m = bitcube.Machine()
    m.set_tile(0, "T#1", np.ones((2, 2), np.float16), "CUBE_M16")
    m.set_shared("S0", np.ones((2, 2), np.float16), "CUBE_M16")
    m.map(0, 64)
    return m


class Values:
    """What one kind of argument takes: wrong values are all of WRONG but these."""

    def __init__(self, *accepted, takes=lambda value: False):
        self.accepted = accepted
        self.takes = takes

    def wrong(self):
        return [value for value in WRONG if not self.takes(value) and
                not any(type(value) is type(a) and value == a for a in self.accepted)]


def is_number(value):
    """One that an array of 64 bits holds."""
    return isinstance(value, float) or (isinstance(value, int) and -2**63 <= value < 2**64)


def is_empty(value):
    return isinstance(value, list) and not value


def has_bytes(value):
    return isinstance(value, (np.ndarray, np.generic)) and not (isinstance(value, np.ma.MaskedArray) or
                                                                value.dtype.hasobject)


NONE = Values()
OPTIONAL = Values(None)
WORDS = Values("no such thing", "")
SIZE64 = Values(2**63)
PATH = Values("x\udc80", b"x", "no such thing", "")
NUMBERS = Values(takes=lambda value: is_number(value) or is_empty(value))



BF16 = np.full((4, 64), 0x3F80, np.uint16)
PRODUCT = np.zeros((4, 4), np.float32)


def diff_conversion(**arguments):
    return bitcube.diff(**arguments)


def diff_product(**arguments):
    return bitcube.diff(**arguments)


def diff_packed(**arguments):
    return bitcube.diff(**arguments)


def diff_tensors(**arguments):
    return bitcube.diff(**arguments)


# The forms of explain(), which takes what belongs together.
def explain_conversion(**arguments):
    return bitcube.explain(**arguments)


def explain_quantisation(**arguments):
    return bitcube.explain(**arguments)


def explain_word(**arguments):
    return bitcube.explain(**arguments)


def explain_program(**arguments):
    return bitcube.explain(**arguments)


# Of every public callable: arguments that work, and which values each of them takes.
FUNCTIONS = [
    (bitcube.convert, dict(x=X, to="bf16", rounding=None, saturate=False, profile="pto", from_=None, threads=0),
     dict(x=NUMBERS, to=NONE, rounding=OPTIONAL, saturate=NONE, profile=NONE, from_=OPTIONAL, threads=NONE)),
    (bitcube.quantize, dict(x=X, format="hif4", axis=-1, profile=None, scale=None, rounding=None, tensor_scale=False,
                            from_=None, source_type=None, threads=0),
     dict(x=Values(takes=is_empty), format=NONE, axis=Values(-1), profile=OPTIONAL, scale=OPTIONAL, rounding=OPTIONAL,
          tensor_scale=NONE, from_=OPTIONAL, source_type=OPTIONAL, threads=NONE)),
    (bitcube.load, dict(path="x", name=""), dict(path=PATH, name=WORDS)),
    (bitcube.names, dict(path="x"), dict(path=PATH)),
    (bitcube.matmul, dict(a=U8, b=U8.T, bias=None, c=None, accumulate="fma", a_type="e4m3", b_type="e4m3",
                          a_scales=None, b_scales=None, pre_quant="NoQuant", scale=None, offset=None, shift=None,
                          quant_params=None, relu=False, relu_param=None, rounding=None, saturate=False, profile="pto",
                          row_max=True, row_max_init=None, group_max=None, max_abs=False, packed=False, threads=0),
     dict(a=NUMBERS, b=NUMBERS, bias=OPTIONAL, c=OPTIONAL, accumulate=NONE, a_type=OPTIONAL,
          b_type=OPTIONAL, a_scales=OPTIONAL, b_scales=OPTIONAL, pre_quant=NONE,
          scale=OPTIONAL, offset=OPTIONAL, shift=OPTIONAL, quant_params=OPTIONAL,
          relu=NONE, relu_param=Values(None, takes=is_number), rounding=OPTIONAL, saturate=NONE, profile=NONE,
          row_max=NONE, row_max_init=OPTIONAL, group_max=OPTIONAL, max_abs=NONE, packed=NONE,
          threads=NONE)),
    (bitcube.postprocess, dict(acc=ACC, mode="REQ8", scale=0.5, offset=None, shift=None, quant_params=None, relu=False,
                               relu_param=None, rounding=None, saturate=False, profile="pto", row_max=True,
                               row_max_init=None, group_max=None, max_abs=False, packed=False, threads=0),
     dict(acc=NONE, mode=NONE, scale=Values(None, 1.5, 2**63, 2**64), offset=Values(None, -1), shift=OPTIONAL,
          quant_params=Values(None, 2**63), relu=NONE, relu_param=Values(None, takes=is_number),
          rounding=OPTIONAL, saturate=NONE, profile=NONE, row_max=NONE, row_max_init=OPTIONAL,
          group_max=OPTIONAL, max_abs=NONE, packed=NONE, threads=NONE)),
    (bitcube.explain_matmul,
     dict(a=U8, b=U8.T, at=(0, 0), bias=None, c=None, accumulate="fma", steps=False, a_type="e4m3", b_type="e4m3",
          a_scales=None, b_scales=None, pre_quant="NoQuant", scale=None, offset=None, shift=None, quant_params=None,
          relu=False, relu_param=None, rounding=None, saturate=False, profile="pto", row_max=True, row_max_init=None,
          group_max=None, max_abs=False),
     dict(a=NUMBERS, b=NUMBERS, at=NONE, bias=OPTIONAL, c=OPTIONAL, accumulate=NONE, steps=NONE, a_type=OPTIONAL,
          b_type=OPTIONAL, a_scales=OPTIONAL, b_scales=OPTIONAL, pre_quant=NONE, scale=OPTIONAL, offset=OPTIONAL,
          shift=OPTIONAL, quant_params=OPTIONAL, relu=NONE, relu_param=Values(None, takes=is_number),
          rounding=OPTIONAL, saturate=NONE, profile=NONE, row_max=NONE, row_max_init=OPTIONAL, group_max=OPTIONAL,
          max_abs=NONE)),
    (bitcube.explain_postprocess,
     dict(acc=ACC, at=(0, 0), mode="REQ8", scale=0.5, offset=None, shift=None, quant_params=None, relu=False,
          relu_param=None, rounding=None, saturate=False, profile="pto", row_max=True, row_max_init=None,
          group_max=None, max_abs=False),
     dict(acc=NONE, at=NONE, mode=NONE, scale=Values(None, 1.5, 2**63, 2**64), offset=Values(None, -1), shift=OPTIONAL,
          quant_params=Values(None, 2**63), relu=NONE, relu_param=Values(None, takes=is_number), rounding=OPTIONAL,
          saturate=NONE, profile=NONE, row_max=NONE, row_max_init=OPTIONAL, group_max=OPTIONAL, max_abs=NONE)),
    (explain_conversion, dict(x=464.0, to="e4m3", rounding=None, saturate=False, profile="pto", from_=None),
     dict(x=Values("", takes=is_number), to=NONE, rounding=OPTIONAL, saturate=NONE, profile=NONE, from_=OPTIONAL)),
    (explain_quantisation,
     dict(x=X, format="hif4", at=(0,) * X.ndim, axis=-1, profile=None, scale=None, rounding=None, tensor_scale=False,
          from_=None, source_type=None),
     dict(x=Values(takes=is_empty), format=NONE, at=NONE, axis=Values(-1), profile=OPTIONAL, scale=OPTIONAL,
          rounding=OPTIONAL, tensor_scale=NONE, from_=OPTIONAL, source_type=OPTIONAL)),
    (explain_word, dict(word=0x38531181), dict(word=SIZE64)),
    (explain_program, dict(program=bitcube.Program(TEXT), all=False, max_steps=1),
     dict(program=NONE, all=NONE, max_steps=NONE)),
    (bitcube.diff,
     dict(golden=ACC, dut=ACC, format=None, shape=None, from_array=None, from_=None, source=None, source_type=None,
          a=None, b=None, bias=None, c=None, accumulate="fma", a_type=None, b_type=None, a_scales=None, b_scales=None,
          pre_quant="NoQuant", scale=None, offset=None, shift=None, quant_params=None, relu=False, relu_param=None,
          rounding=None, saturate=False, profile="pto", ulps=None, rtol=None, atol=None, first=10, diagnose=True,
          threads=0),
     dict(format=OPTIONAL, ulps=Values(None, 2**63, 1 << 62), rtol=Values(None, 1.5, 10**30, 2**63, 2**64),
          atol=Values(None, 1.5, 10**30, 2**63, 2**64), first=NONE, diagnose=NONE, threads=NONE)),
    (diff_conversion,
     dict(golden=BF16, dut=BF16, format="bf16", from_array=X, from_=None, rounding=None, saturate=False, profile="pto"),
     dict(format=OPTIONAL, from_array=OPTIONAL, from_=OPTIONAL, rounding=OPTIONAL, saturate=NONE, profile=NONE)),
    (diff_product,
     dict(golden=PRODUCT, dut=PRODUCT, a=U8, b=U8.T, bias=None, c=None, accumulate="fma", a_type="e4m3", b_type="e4m3",
          a_scales=None, b_scales=None, pre_quant="NoQuant", scale=None, offset=None, shift=None, quant_params=None,
          relu=False, relu_param=None, rounding=None, saturate=False, profile="pto"),
     dict(a=NUMBERS, b=NUMBERS, bias=OPTIONAL, c=OPTIONAL, accumulate=NONE, a_type=OPTIONAL, b_type=OPTIONAL, a_scales=OPTIONAL, b_scales=OPTIONAL, pre_quant=NONE,
          scale=OPTIONAL, offset=OPTIONAL, shift=OPTIONAL, quant_params=OPTIONAL, relu=NONE,
          relu_param=Values(None, takes=is_number), rounding=OPTIONAL, saturate=NONE, profile=NONE)),
    (diff_tensors, dict(golden=Q, dut=Q, source=X, source_type=None),
     dict(dut=NONE, source=OPTIONAL, source_type=OPTIONAL)),
    (diff_packed, dict(golden=U8, dut=U8, format="e2m1", shape=(4, 128)),
     dict(golden=Values(takes=lambda value: True), dut=NONE, format=NONE,
          shape=Values(None, takes=lambda value: isinstance(value, list)))),
    (bitcube.assemble, dict(text=""), dict(text=Values("", "no such thing"))),
    (bitcube.assemble_bytes, dict(text=""), dict(text=Values("", "no such thing"))),
    (bitcube.disassemble, dict(data=b""), dict(data=Values(b"x", takes=has_bytes))),
    (Q.dequantize, dict(dtype="float32", rounding=None, threads=0),
     dict(dtype=NONE, rounding=OPTIONAL, threads=NONE)),
    (Q.dequantize_with_flags, dict(dtype="float32", rounding=None, threads=0),
     dict(dtype=NONE, rounding=OPTIONAL, threads=NONE)),
    (Q.error, dict(original=X, threads=0), dict(original=NONE, threads=NONE)),
    (Q.save, dict(path="/nowhere/x", name="tensor"), dict(path=PATH, name=Values("no such thing", ""))),
    (bitcube.Program, dict(text=TEXT, name="n", directory=""),
     dict(text=Values("", "no such thing"), name=WORDS, directory=PATH)),
    (bitcube.Program.load, dict(path="x"), dict(path=PATH)),
    (bitcube.Machine, dict(name_policy="relative", wait_on_pending=False, coop_exact_columns=False,
                           aux_exact_columns=False, gemv_hif4=True, strict_reserved_bits=True, scalar_pe=0,
                           accumulate="fma", profile="pto"),
     dict(name_policy=NONE, wait_on_pending=NONE, coop_exact_columns=NONE, aux_exact_columns=NONE,
          gemv_hif4=NONE, strict_reserved_bits=NONE, scalar_pe=NONE, accumulate=NONE, profile=NONE)),
    (machine().step, dict(instruction=None, faults="return"),
     dict(instruction=Values(None, 2**63, "no such thing"), faults=NONE)),
    (machine().run, dict(program=TEXT, max_steps=1, faults="return", trace=False),
     dict(program=Values("", "no such thing", b"x"), max_steps=SIZE64, faults=NONE, trace=NONE)),
    (machine().tile, dict(pe=0, name="T#1"), dict(pe=NONE, name=NONE)),
    (machine().set_tile, dict(pe=0, name="T#1", data=np.ones((2, 2), np.float16), layout="RowMajor", type=None,
                              columns=0, capacity=0),
     dict(pe=NONE, name=NONE, data=NONE, layout=NONE, type=OPTIONAL, columns=NONE, capacity=NONE)),
    (machine().shared, dict(name="S0"), dict(name=NONE)),
    (machine().shared_ready, dict(name="S0"), dict(name=NONE)),
    (machine().set_shared, dict(name="S0", data=np.ones((2, 2), np.float16), layout="RowMajor", type=None, columns=0,
                                capacity=0),
     dict(name=NONE, data=NONE, layout=NONE, type=OPTIONAL, columns=NONE, capacity=NONE)),
    (machine().set_pending, dict(name="S0"), dict(name=NONE)),
    (machine().local_pool, dict(pe=0), dict(pe=NONE)),
    (machine().gpr, dict(pe=0, name="a0"), dict(pe=NONE, name=NONE)),
    (machine().set_gpr, dict(pe=0, name="a0", value=1), dict(pe=NONE, name=NONE, value=SIZE64)),
    (machine().map, dict(address=0, size=1), dict(address=SIZE64, size=NONE)),
    (machine().read, dict(address=0, size=1), dict(address=SIZE64, size=NONE)),
    (machine().write, dict(address=0, data=b"x"),
     dict(address=SIZE64, data=Values(b"x", takes=has_bytes))),
    (machine().restore, dict(text=machine().save(), name="state"), dict(text=WORDS, name=WORDS)),
]
CASES = [(function, working, argument, values) for function, working, tried in FUNCTIONS
         for argument, values in tried.items()]


def called(function):
    return getattr(function, "__qualname__", repr(function))


def parameters_of(function):
    return set(inspect.signature(function).parameters) - {"self"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{called(case[0])}-{case[2]}")
def test_wrong_arguments_are_named(case):
    function, working, argument, values = case
    for value in values.wrong():
        with pytest.raises((TypeError, ValueError)) as raised:
            function(**{**working, argument: value})
        message = str(raised.value)
        assert message.partition(": ")[0] == argument, (value, message)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{called(case[0])}-{case[2]}")
def test_no_value_raises_anything_else(case, tmp_path, monkeypatch):
    """Neither do those that this argument takes."""
    monkeypatch.chdir(tmp_path)  # some of them are paths to write
    function, working, argument, _ = case
    for value in WRONG:
        try:
            function(**{**working, argument: value})
        except (TypeError, ValueError) as fault:  # not of pybind11, which would list signatures
            assert "incompatible function arguments" not in str(fault) and "nvoked with" not in str(fault)


def test_the_table_has_every_argument_of_every_public_function():
    tabled = {called(function): set(working) for function, working, tried in FUNCTIONS if set(working) == set(tried)}
    missing = []
    for name in bitcube.__all__:
        thing = getattr(bitcube, name)
        members = {name: thing} if inspect.isfunction(thing) else {}
        if thing in (bitcube.Machine, bitcube.Program, bitcube.QuantizedTensor):
            members = {f"{name}.{n}": getattr(thing, n) for n in vars(thing) if not n.startswith("_")}
            if thing is not bitcube.QuantizedTensor:
                members[name] = thing.__init__
        for qualified, member in members.items():
            if not callable(member):
                continue
            forms = typing.get_overloads(member)
            if forms:
                missing += [(qualified, parameters_of(form)) for form in forms
                            if parameters_of(form) not in tabled.values()]
                continue
            parameters = parameters_of(member)
            if member is bitcube.diff:  # each of its forms takes some of them
                tried = set().union(*(set(tried) for function, _, tried in FUNCTIONS
                                      if called(function).startswith("diff")))
                missing += [(qualified, parameters - tried)] if parameters != tried else []
                continue
            if parameters and tabled.get(qualified) != parameters:
                missing.append((qualified, parameters))
    assert not missing


def test_the_working_arguments_work(tmp_path):
    Q.save(tmp_path / "x", "tensor")
    for function, working, _ in FUNCTIONS:
        if "path" not in working:
            function(**working)


def test_properties():
    m = machine()
    for value in WRONG:
        if not (isinstance(value, int) and value == 2**63):
            with pytest.raises((TypeError, ValueError), match="^pc: "):
                m.pc = value


def test_masked_arrays_are_refused():
    masked = np.ma.masked_array(X, X > 2)
    for call in (lambda: bitcube.convert(masked, "bf16"), lambda: bitcube.quantize([masked[0]] * 2, "hif4"),
                 lambda: bitcube.convert(np.ma.masked, "bf16")):
        with pytest.raises(ValueError, match=r"^x: masked arrays are not supported; fill them with x\.filled"):
            call()
    for call in (lambda: bitcube.matmul(masked, X.T), lambda: bitcube.matmul(X, X.T, c=np.ma.zeros((4, 4), np.float32)),
                 lambda: Q.error(masked), lambda: machine().write(0, masked),
                 lambda: bitcube.postprocess(ACC, "VREQ8", scale=np.ma.ones(8))):
        with pytest.raises(ValueError, match="masked arrays are not supported"):
            call()


def test_switches_take_what_numpy_calls_true():
    for true in (True, 1, np.True_, np.int8(1)):
        assert bitcube.convert(np.float32(464), "e4m3", saturate=true)[0] == 0x7E
    for false in (False, 0, np.False_):
        assert bitcube.convert(np.float32(464), "e4m3", saturate=false)[0] == 0x7F


@pytest.mark.parametrize("cls", [_bitcube.Tensor, _bitcube.Core, _bitcube.Program])
def test_private_classes_have_no_objects_without_contents(cls):
    for make in (cls, lambda: cls({}), lambda: cls.__new__(cls), lambda: object.__new__(cls),
                 lambda: cls.__mro__[1].__new__(cls), type("Sub", (cls, ), {}),
                 lambda: type("Sub", (cls, ), {}).__new__(cls)):
        with pytest.raises(TypeError):
            make()


def test_copies_of_private_objects():
    m = machine()
    for thing in (Q._tensor, m._core, bitcube.Program(TEXT)._program):
        for duplicate in (copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))):
            with pytest.raises(TypeError):
                duplicate(thing)
        with pytest.raises(TypeError):
            thing.__init__()


def test_public_objects_without_contents_do_not_crash():
    for cls in (bitcube.QuantizedTensor, bitcube.Program, bitcube.Machine):
        empty = cls.__new__(cls)
        for name in dir(cls):
            if isinstance(inspect.getattr_static(cls, name), property):
                with pytest.raises(AttributeError):
                    getattr(empty, name)


def test_paths_of_every_kind(tmp_path):
    for path in (tmp_path / "a", str(tmp_path / "b"), bytes(tmp_path / "c"), str(tmp_path) + "/\udc80"):
        Q.save(path)
        assert bitcube.names(path) == ["tensor"] and bitcube.load(path, "tensor").shape == Q.shape
