"""Why two results differ."""

from __future__ import annotations

import json
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import numpy as np

from . import _bitcube
from ._arrays import accumulators, count, format_named, optional_text, switch, text, typed, words
from ._functions import QuantizedTensor, post_arguments, side
from ._types import Array


class Diagnosis(NamedTuple):
    """An explanation of the mismatches: a hypothesis, or two together."""

    ids: Tuple[str, ...]  #: of the hypotheses that ``bitcube diff --list`` lists
    title: str
    certainty: str  #: "complete", "mostly" or "hint"
    explains: int  #: mismatches that it predicts, bit for bit
    of: int  #: mismatches
    introduces: int  #: elements that agree, where it predicts a difference
    detail: str
    remedy: str  #: what to look at
    indistinguishable: Tuple[str, ...]  #: others that predict the same on this data
    in_golden: bool  #: the fault is golden's: dut is what the inputs give


class Difference:
    """What :func:`diff` found. ``str()`` is the report of ``bitcube diff``; true if something differs."""

    __slots__ = ("_text", "_json")

    def __init__(self, report: str, data: Dict[str, Any]) -> None:
        self._text = report
        self._json = data

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<bitcube.Difference: {self.mismatches} mismatches, {len(self.diagnoses)} diagnoses>"

    def __bool__(self) -> bool:
        return not self.equal

    @property
    def equal(self) -> bool:
        """Bit for bit."""
        return bool(self._json["equal"])

    @property
    def passes(self) -> bool:
        """Equal, or all differences within the tolerance that was asked for."""
        return bool(self._json["passes"])

    @property
    def mismatches(self) -> int:
        """Elements of different bits."""
        return int(self._json["mismatches"])

    @property
    def golden_faults(self) -> Optional[int]:
        """Elements of golden that are not what the inputs give; None without inputs."""
        return self._json.get("golden_faults")

    @property
    def warnings(self) -> List[str]:
        return list(self._json["warnings"])

    @property
    def parts(self) -> List[Dict[str, Any]]:
        """Of each array that was compared: counts by class and by ulp, first and worst mismatches, patterns, map."""
        return list(self._json["parts"])

    @property
    def diagnoses(self) -> List[Diagnosis]:
        """Best first."""
        return [Diagnosis(**{**d, "ids": tuple(d["ids"]), "indistinguishable": tuple(d["indistinguishable"])})
                for d in self._json["diagnoses"]]

    def to_dict(self) -> Dict[str, Any]:
        """All of it, as ``bitcube diff --json`` prints it."""
        return dict(self._json)


def diff(golden: Any, dut: Any, format: Optional[str] = None, *, shape: Optional[Tuple[int, ...]] = None,
         from_array: Any = None, from_: Optional[str] = None, source: Any = None, source_type: Optional[str] = None,
         a: Any = None, b: Any = None, bias: Any = None, c: Any = None, accumulate: str = "fma",
         a_type: Optional[str] = None, b_type: Optional[str] = None, a_scales: Any = None, b_scales: Any = None,
         pre_quant: Union[str, int] = "NoQuant", scale: Any = None, offset: Any = None, shift: Any = None,
         quant_params: Any = None, relu: bool = False, relu_param: Any = None, rounding: Optional[str] = None,
         saturate: bool = False, profile: str = "pto", ulps: Optional[int] = None, rtol: Optional[float] = None,
         atol: Optional[float] = None, first: int = 10, diagnose: bool = True, threads: int = 0) -> Difference:
    """Compares two results bit for bit, and says why they differ.

    golden, dut  two arrays of one dtype and shape, with a format of one width and shape, or two tensors of :func:`quantize`
    format       what the elements are; None: what the dtype says
    shape        that of the lanes, where two 4-bit lanes lie in a byte
    from_array   golden is its conversion, with from_, rounding, saturate and profile as with :func:`convert`
    source       golden is this array, quantised as golden says, rounded first to source_type or to what golden says;
                 of unsigned integers source_type is what they are codes of
    a, b         golden is their product, with bias, c, accumulate, a_type, b_type, a_scales, b_scales and the
                 post-process as with :func:`matmul`
    ulps         elements this near pass; rtol and atol likewise, |dut - golden| <= atol + rtol |golden|
    first        mismatches to list
    diagnose     look for the reason as well
    threads      0: all cores

    Raises ValueError for shapes, names and inputs that do not fit, TypeError for dtypes.
    """
    settings = {
        "ulps": None if ulps is None else count(ulps, "ulps", 1 << 63),
        "rtol": _tolerance(rtol, "rtol"),
        "atol": _tolerance(atol, "atol"),
        "first": max(count(first, "first"), 1),
        "diagnose": switch(diagnose, "diagnose"),
        "threads": count(threads, "threads"),
    }
    product = a is not None or b is not None
    _only_with("a and b", product, bias=bias, c=c, a_type=a_type, b_type=b_type, a_scales=a_scales, b_scales=b_scales,
               scale=scale, offset=offset, shift=shift, quant_params=quant_params, relu=_unless(relu, False),
               relu_param=relu_param, accumulate=_unless(accumulate, "fma"),
               pre_quant=_unless(pre_quant, "NoQuant"))
    _only_with("from_array", from_array is not None, from_=from_)
    _only_with("source", source is not None, source_type=source_type)
    _only_with("from_array, or a and b", product or from_array is not None, rounding=rounding,
               saturate=_unless(saturate, False), profile=_unless(profile, "pto"))
    if (from_array is not None) + (source is not None) + product > 1:
        raise ValueError("from_array, source, and a with b say how golden was made; give those of one")
    if isinstance(golden, QuantizedTensor) != isinstance(dut, QuantizedTensor):
        raise TypeError("dut: a quantised tensor is compared with another one")
    if isinstance(golden, QuantizedTensor):
        if from_array is not None or product:
            raise ValueError("golden is quantised: source says what it was made from")
        original = None if source is None else _source(source, source_type, golden, settings["threads"])
        if original is not None and original[0].shape != tuple(golden.shape):
            raise ValueError(f"source: shape {original[0].shape}, but golden has {tuple(golden.shape)}")
        return _difference(_bitcube.diff_tensors(golden._tensor, dut._tensor, original, settings))
    if source is not None:
        raise ValueError("source: golden is an array; only tensors of quantize() are made from one")

    lanes = None if shape is None else _shape(shape)
    golden_words, right, wrong = *words(golden, "golden"), words(dut, "dut")
    same_type = wrong[1] == right if format is None else wrong[0].itemsize == golden_words.itemsize
    if not same_type or wrong[0].shape != golden_words.shape:
        raise ValueError(f"dut: {wrong[1]} of shape {wrong[0].shape}, but golden is {right} of shape "
                         f"{golden_words.shape}")
    if product:
        if a is None or b is None:
            raise ValueError(f"{'a' if a is None else 'b'}: a product needs both a and b")
        post = post_arguments("pre_quant", pre_quant, scale, offset, shift, quant_params, relu, relu_param, rounding,
                              saturate, profile, False, None, None, False, False)
        return _difference(
            _bitcube.diff_products(golden_words, wrong[0], side(a, "a", a_type, a_scales),
                                   side(b, "b", b_type, b_scales), accumulators(c, "c"), accumulators(bias, "bias"),
                                   text(accumulate, "accumulate"), post, settings))
    if shape is None:
        name = typed(golden, "golden", optional_text(format, "format"), "format")[1]
    else:
        name = _named(format, golden_words)
    conversion = None
    if from_array is not None:
        array, origin = typed(from_array, "from_array", optional_text(from_, "from_"))
        if array.shape != (golden_words.shape if lanes is None else lanes):
            raise ValueError(f"from_array: shape {array.shape}, but golden has "
                             f"{golden_words.shape if lanes is None else lanes}")
        conversion = (array, origin, optional_text(rounding, "rounding"), switch(saturate, "saturate"),
                      text(profile, "profile"))
    return _difference(_bitcube.diff(golden_words, wrong[0], name, lanes, conversion, settings))


def _unless(value: Any, default: Any) -> Any:
    return None if isinstance(value, type(default)) and value == default else value


def _only_with(what: str, given: bool, **arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None and not given:
            raise ValueError(f"{name}: it belongs to {what}, which is not given")


def _source(source: Any, source_type: Optional[str], golden: QuantizedTensor, threads: int) -> Tuple[Array, str]:
    """The array that was quantised and its format: rounded first to source_type, or to what golden records."""
    wanted = optional_text(source_type, "source_type")
    if wanted is None:
        wanted = golden.source
    array, dtype = words(source, "source")
    if dtype.startswith("uint"):
        if source_type is None and format_named("source_type", wanted).carrier_bits != 8 * array.itemsize:
            wanted = None
        return typed(source, "source", wanted, "source_type")
    stored = typed(source, "source", None)[1]
    to = format_named("source_type", wanted)
    if to.name == stored:
        return array, stored
    return _bitcube.convert(array, stored, to.name, "RNE", False, "pto", threads)[0], to.name


def _shape(shape: Any) -> Tuple[int, ...]:
    if not isinstance(shape, (tuple, list)):
        raise TypeError(f"shape: a tuple of ints, not {type(shape).__name__}")
    return tuple(count(extent, "shape", 1 << 62) for extent in shape)


def _tolerance(value: Any, argument: str) -> Optional[float]:
    if value is None:
        return None
    if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        if not 0 <= value <= np.finfo(np.float64).max:
            raise ValueError(f"{argument}: {value!r}; a tolerance is a finite number from 0")
        return float(value)
    raise TypeError(f"{argument}: a number, not {type(value).__name__}")


def _named(format: Optional[str], array: Array) -> str:
    if format is None:
        raise ValueError("format: with a shape, say what the lanes are")
    f = format_named("format", format)
    if f.carrier_bits != 8 * np.dtype(array.dtype).itemsize:
        raise TypeError(f"format: {array.dtype.name} elements are no lanes of {f.name}")
    return f.name


def _difference(result: Tuple[str, str]) -> Difference:
    return Difference(result[0], json.loads(result[1]))
