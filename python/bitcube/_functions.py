"""Conversions, quantisers, products and the post-process."""

from __future__ import annotations

import numbers
import os
from typing import Any, Dict, List, Optional, Tuple, Union

import numpy as np

from . import _bitcube
from ._arrays import (accumulators, array_of, count, encoded_path, format_named, integer, optional_text, switch, text,
                      typed, words)
from ._types import Array, BlockFormat, ErrorReport, Flags, Format, Result

_PathLike = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


def formats() -> List[Format]:
    """Every Tile data type, in the order of the codes."""
    return [Format(**f) for f in _bitcube.formats()]


def block_formats() -> List[BlockFormat]:
    """The formats of :func:`quantize`."""
    return [BlockFormat(**f) for f in _bitcube.block_formats()]


def choices() -> Dict[str, Tuple[str, ...]]:
    """The names that the arguments ``rounding``, ``profile``, ``scale``, ``accumulate`` and ``mode`` take, and the
    block formats and profiles of :func:`quantize`. All are read in any case; the default comes first."""
    return {key: tuple(names) for key, names in _bitcube.choices().items()}


def convert(x: Any, to: str, rounding: Optional[str] = None, saturate: bool = False, profile: str = "pto",
            from_: Optional[str] = None, *, threads: int = 0) -> Tuple[Array, Flags]:
    """Converts every element as TCVT does, with one rounding.

    x         an array of any shape and layout, or what ``numpy.asarray`` takes
    to        the destination format, such as ``"hif8"``; :func:`formats` lists them
    rounding  RNE, RTZ, RTM, RTP, RNA, RTO or RHB; None: RTZ from float to integer, otherwise RNE
    saturate  Sat = 1
    profile   pto, asl or ocp
    from_     what the bits of the elements are, such as ``"bf16"`` for uint16; None: what the dtype says
    threads   0: all cores

    Returns the codes, one per element and of the same shape, and the flags of all elements together. FP32, TF32 and
    HF32 come as float32, FP64 and FP16 as float64 and float16, integers as themselves (lanes of S4X2 sign-extended),
    everything else as unsigned codes. HiF4X2 lanes are converted as those of E1M2X2, without a scale.

    Raises ValueError for unknown names and pairs that do not convert, TypeError for a dtype that is no format or does
    not fit ``from_``.
    """
    array, source = typed(x, "x", optional_text(from_, "from_"))
    out, flags = _bitcube.convert(array, source, format_named("to", to).name, optional_text(rounding, "rounding"),
                                  switch(saturate, "saturate"), text(profile, "profile"), count(threads, "threads"))
    return out, Flags(flags)


class QuantizedTensor:
    """A tensor in a block format, with every choice that made it. :func:`quantize` and :func:`load` make them."""

    __slots__ = ("_tensor", )
    _tensor: _bitcube.Tensor

    def __init__(self, *_: Any) -> None:
        raise TypeError("a QuantizedTensor comes from bitcube.quantize() or bitcube.load()")

    @classmethod
    def _wrap(cls, tensor: _bitcube.Tensor) -> "QuantizedTensor":
        self = object.__new__(cls)
        self._tensor = tensor
        return self

    @property
    def format(self) -> str:
        """Name of the block format."""
        return self._tensor.format

    @property
    def shape(self) -> Tuple[int, ...]:
        """Logical shape, that of the original."""
        return self._tensor.shape

    @property
    def axis(self) -> int:
        """The axis along which groups lie, from 0."""
        return self._tensor.axis

    @property
    def profile(self) -> Optional[str]:
        """Profile of the quantiser; HiF4 only."""
        return self._tensor.profile

    @property
    def scale_rule(self) -> Optional[str]:
        """Scale rule; MX formats only."""
        return self._tensor.scale_rule

    @property
    def rounding(self) -> str:
        """Rounding of the elements of MX and NVFP4; that of HiF4 belongs to its profile."""
        return self._tensor.rounding

    @property
    def source(self) -> str:
        """The format from which it was quantised."""
        return self._tensor.source

    @property
    def tensor_scale(self) -> Optional[float]:
        """NVFP4: the FP32 scale of the whole tensor, where it has one."""
        word = self._tensor.tensor_scale
        return None if word is None else float(np.uint32(word).view(np.float32))

    @property
    def codes(self) -> Array:
        """uint8, [other dimensions..., bytes of a line]: two lanes per byte in 4-bit formats, even lane low. A view."""
        return self._tensor.codes

    @property
    def scales(self) -> Array:
        """[other dimensions..., groups of a line]: uint32 words of HiF4, uint8 E8M0 or E4M3 of the others. A view."""
        return self._tensor.scales

    @property
    def nbytes(self) -> int:
        """Bytes of codes and scales together."""
        return self._tensor.nbytes

    def dequantize(self, dtype: Any = "float32", rounding: Optional[str] = None, *, threads: int = 0) -> Array:
        """The values, in the logical shape: float32, float64, float16, or ``"bf16"`` as uint16 bits.

        Each is exact until one rounding to ``dtype`` (RNE, where ``rounding`` is None). Raises ValueError for another
        ``dtype``.
        """
        return self.dequantize_with_flags(dtype, rounding, threads=threads)[0]

    def dequantize_with_flags(self, dtype: Any = "float32", rounding: Optional[str] = None, *,
                              threads: int = 0) -> Tuple[Array, Flags]:
        """The same, with the flags of all conversions together."""
        out, flags = self._tensor.dequantize(_float_format(dtype), optional_text(rounding, "rounding"),
                                             count(threads, "threads"))
        return out, Flags(flags)

    def error(self, original: Any, *, threads: int = 0) -> ErrorReport:
        """How far it is from the array that was quantised, whose elements must be of the same format.

        Raises ValueError for another shape, TypeError for another format.
        """
        array, dtype = words(original, "original")
        f = format_named("source", self.source)
        fits = array.itemsize * 8 == f.carrier_bits
        if not fits or (array.dtype.kind == "f" and dtype != f.dtype) or array.dtype.kind == "i":
            raise TypeError(f"original: {dtype}, but the tensor was quantised from {f.name}")
        if array.shape != self.shape:
            raise ValueError(f"original: shape {array.shape}, but the tensor has {self.shape}")
        return ErrorReport(*self._tensor.error(array, count(threads, "threads")))

    def save(self, path: _PathLike, name: str = "tensor") -> None:
        """Writes a .safetensors file, as ``bitcube quantize`` does: completely or not at all. Raises ValueError."""
        self._tensor.save(encoded_path(path), text(name, "name"))

    def __repr__(self) -> str:
        choice = f", profile={self.profile!r}" if self.profile else ""
        choice += f", scale={self.scale_rule!r}" if self.scale_rule else ""
        choice += f", tensor_scale={self.tensor_scale!r}" if self.tensor_scale is not None else ""
        return (f"QuantizedTensor({self.format!r}, shape={self.shape}, axis={self.axis}{choice}, "
                f"nbytes={self.nbytes})")


def quantizable(x: Any, axis: int, from_: Optional[str]) -> Tuple[Array, str, int]:
    """What :func:`quantize` makes of its arguments: the words, their format, and the axis from 0."""
    array, source = typed(x, "x", optional_text(from_, "from_"))
    if from_ is None and source == "U16":
        source = "BF16"
    if format_named("from_", source).kind != "float" or array.dtype.kind == "i":
        raise TypeError(f"x: {array.dtype.name} elements; accepted are float16, float32, float64, bfloat16, uint16 "
                        "(bits of BF16), or unsigned codes of a float with from_")
    rank = array.ndim
    if rank == 0:
        raise ValueError("x: a scalar, which has no axis")
    axis = integer(axis, "axis")
    if not -rank <= axis < rank:
        raise ValueError(f"axis: {axis} is outside of shape {array.shape}; it goes from {-rank} to {rank - 1}")
    return array, source, axis % rank


def quantize(x: Any, format: str, axis: int = -1, profile: Optional[str] = None, scale: Optional[str] = None,
             rounding: Optional[str] = None, tensor_scale: bool = False, from_: Optional[str] = None,
             source_type: Optional[str] = None, *, threads: int = 0) -> QuantizedTensor:
    """Quantises an array in groups along one axis.

    x             float16, float32, float64, bfloat16, or uint16 as bits of BF16, of at least one dimension
    format        hif4, mxfp8-e4m3, mxfp8-e5m2, mxfp6-e3m2, mxfp6-e2m3, mxfp4, mxfp4-e1m2 or nvfp4
    axis          where groups lie; negative ones count from the last
    profile       hif4: pto (the default), pto-a6, paper, bench or literal
    scale         MX formats: floor (the default), ceil, rceil or even
    rounding      MX formats and nvfp4: of the elements; None: RNE
    tensor_scale  nvfp4: with an FP32 scale of the whole tensor
    from_         what the bits of the elements are, such as ``"e5m2"`` for uint8; None: what the dtype says
    source_type   round the elements to this float first (RNE)
    threads       0: all cores

    Raises ValueError for unknown names, arguments that belong to another format and an axis that is none, TypeError for
    a dtype that is no float.
    """
    array, source, line = quantizable(x, axis, from_)
    workers = count(threads, "threads")
    if source_type is not None:
        wanted = format_named("source_type", source_type)
        if wanted.name != source:
            array, _ = _bitcube.convert(array, source, wanted.name, "RNE", False, "pto", workers)
            source = wanted.name
    tensor = _bitcube.quantize(array, source, line, text(format, "format"), optional_text(profile, "profile"),
                               optional_text(scale, "scale"), optional_text(rounding, "rounding"),
                               switch(tensor_scale, "tensor_scale"), workers)
    return QuantizedTensor._wrap(tensor)


def load(path: _PathLike, name: str = "") -> QuantizedTensor:
    """Reads a quantised tensor from a .safetensors file; ``name`` may be empty if the file has only one.

    Everything is checked. Raises ValueError, whose message names the file, the tensor and the fault.
    """
    return QuantizedTensor._wrap(_bitcube.load(encoded_path(path), text(name, "name")))


def names(path: _PathLike) -> List[str]:
    """The names of the quantised tensors of a .safetensors file."""
    return _bitcube.packed_names(encoded_path(path))


def matmul(a: Any, b: Any, bias: Any = None, c: Any = None, accumulate: str = "fma", *,
           a_type: Optional[str] = None, b_type: Optional[str] = None, a_scales: Any = None, b_scales: Any = None,
           pre_quant: Union[str, int] = "NoQuant", scale: Any = None, offset: Any = None, shift: Any = None,
           quant_params: Any = None, relu: bool = False, relu_param: Any = None, rounding: Optional[str] = None,
           saturate: bool = False, profile: str = "pto", row_max: bool = False, row_max_init: Any = None,
           group_max: Optional[int] = None, max_abs: bool = False, packed: bool = False,
           threads: int = 0) -> Result:
    """C + A B + bias as the CUBE computes it, then the post-process.

    a           M x K: a QuantizedTensor along axis 1, or a matrix of float32, float16, bfloat16, int8, int16, uint8 or
                uint16
    b           K x N: a QuantizedTensor along axis 0, or such a matrix
    bias        N or 1 x N accumulators (float32, int32 or uint32, as the operands decide), added after the last k
    c           M x N accumulators to start from; None: +0
    accumulate  fma, two-step, group, exact or raw-carrier
    a_type      the elements of a are codes of this format, one lane each; b_type likewise
    a_scales    M x groups of K, uint8 (E8M0) or, for HiF4, uint32
    b_scales    groups of K x N
    pre_quant   PreQuant mode of B.FPATR; this and the rest as with :func:`postprocess`

    Raises ValueError for shapes, names and parameters that do not fit, TypeError for dtypes.
    """
    post = post_arguments("pre_quant", pre_quant, scale, offset, shift, quant_params, relu, relu_param, rounding,
                          saturate, profile, row_max, row_max_init, group_max, max_abs, packed)
    sides = (side(a, "a", a_type, a_scales), side(b, "b", b_type, b_scales))
    return _result(_bitcube.matmul(*sides, accumulators(c, "c"), accumulators(bias, "bias"),
                                   text(accumulate, "accumulate"), post, count(threads, "threads")))


def postprocess(acc: Any, mode: Union[str, int] = "NoQuant", *, scale: Any = None, offset: Any = None,
                shift: Any = None, quant_params: Any = None, relu: bool = False, relu_param: Any = None,
                rounding: Optional[str] = None, saturate: bool = False, profile: str = "pto", row_max: bool = False,
                row_max_init: Any = None, group_max: Optional[int] = None, max_abs: bool = False,
                packed: bool = False, threads: int = 0) -> Result:
    """Requantises accumulators as B.FPATR does.

    acc           M x N, or N for one row: float32 (FP32), int32 (S32) or uint32 (U32)
    mode          PreQuant mode by name or code, such as ``"REQ8"`` or 3
    scale         a number, rounded once to FP19; N of them for a per-column mode
    offset        an integer that is added after rounding; or N of them
    shift         of the shift modes, 1 to 16; or N of them
    quant_params  instead of the three: the carrier word, or N of uint64
    relu          negative accumulators give 0
    relu_param    negative accumulators times this number instead of the scale, rounded to FP19; or N numbers, or N
                  carrier words of uint64
    rounding      where the mode lets one choose; None: RNE
    saturate      Sat = 1
    row_max       the largest accumulator of each row, starting from row_max_init (M or M x 1), where given
    group_max     N: the largest accumulator of every N columns
    max_abs       ... of their absolute values
    packed        S4X2 as uint8, two lanes per byte, even column low
    threads       0: all cores

    Raises ValueError for parameters that the mode does not take or the architecture refuses, TypeError for dtypes.
    """
    array, kind = accumulator_matrix(acc)
    post = post_arguments("mode", mode, scale, offset, shift, quant_params, relu, relu_param, rounding, saturate,
                          profile, row_max, row_max_init, group_max, max_abs, packed)
    return _result(_bitcube.postprocess(array, kind, post, count(threads, "threads")))


_FLOATS = {"float64": "FP64", "float32": "FP32", "float16": "FP16", "bfloat16": "BF16",
           "fp64": "FP64", "fp32": "FP32", "fp16": "FP16", "bf16": "BF16"}


def _float_format(dtype: Any) -> str:
    if isinstance(dtype, str):
        key = text(dtype, "dtype").lower()
    elif dtype is None:  # which NumPy takes for float64
        raise TypeError("dtype: float32, float64, float16 or bf16, not None")
    else:
        try:
            key = np.dtype(dtype).name
        except TypeError as fault:
            raise TypeError(f"dtype: {fault}") from None
    if key not in _FLOATS:
        raise ValueError(f"dtype: {key}; accepted are float32, float64, float16 and bf16")
    return _FLOATS[key]


def side(x: Any, argument: str, type_: Optional[str], scales: Any) -> Any:
    """One side of a product as the extension takes it."""
    if isinstance(x, QuantizedTensor):
        for suffix, value in (("type", type_), ("scales", scales)):
            if value is not None:
                raise ValueError(f"{argument}_{suffix}: {argument} is a quantised tensor, which says that itself")
        return x._tensor
    array, source = typed(x, argument, optional_text(type_, f"{argument}_type"), f"{argument}_type")
    if type_ is None and source in ("FP64", "S64", "U64", "S32", "U32"):
        raise TypeError(f"{argument}: {array.dtype.name} is no operand type; accepted are float32, float16, bfloat16, "
                        f"int8, int16, uint8 and uint16, or any codes with {argument}_type")
    if array.ndim != 2:
        raise ValueError(f"{argument}: an operand is a matrix of 2 dimensions, but this has shape {array.shape}")
    return array, source, accumulators(scales, f"{argument}_scales")


def accumulator_matrix(acc: Any) -> Tuple[Array, str]:
    """Accumulators as a matrix, and the name of their type."""
    array, dtype = words(acc, "acc")
    kind = {"float32": "FP32", "int32": "S32", "uint32": "U32"}.get(dtype)
    if kind is None:
        raise TypeError(f"acc: {dtype} elements; accumulators are float32 (FP32), int32 (S32) or uint32 (U32)")
    if array.ndim not in (1, 2):
        raise ValueError(f"acc: shape {array.shape}; accumulators are M x N, or N for one row")
    if array.size == 0:
        raise ValueError(f"acc: shape {array.shape} has no elements")
    return np.atleast_2d(array), kind


def _integers(value: Any, argument: str, low: int, high: int, dtype: type) -> Any:
    """None, an int in a range, or an array of them with one dimension."""
    if value is None:
        return None
    array = array_of(value, argument)
    if array.dtype.kind not in "iu" and not (array.dtype == object and array.ndim == 0 and isinstance(value, int)):
        raise TypeError(f"{argument}: integers, not {array.dtype.name}")
    odd = [int(v) for v in array.ravel().tolist() if not low <= v <= high]
    if odd:
        raise ValueError(f"{argument}: {odd[0]} is outside of {low} to {high}")
    return int(value) if array.ndim == 0 else _columns(array, argument).astype(dtype)


def _columns(array: Array, argument: str) -> Array:
    if array.ndim == 2 and array.shape[0] == 1:
        array = array[0]
    if array.ndim != 1:
        raise ValueError(f"{argument}: shape {array.shape}; parameters are one, N or 1 x N")
    return np.ascontiguousarray(array)


def _numbers(value: Any, argument: str) -> Any:
    """None, a float, or an array of float64 with one dimension, which hold exactly what was given."""
    if value is None:
        return None
    array = array_of(value, argument)
    if array.dtype.name not in ("float16", "float32", "float64") and array.dtype.kind not in "iu":
        raise TypeError(f"{argument}: real numbers, not {array.dtype.name}")
    exact = array.astype(np.float64)
    if array.dtype.kind in "iu" and any(int(e) != int(v) for e, v in zip(exact.ravel(), array.ravel())):
        raise ValueError(f"{argument}: an integer that float64 cannot hold")
    return float(exact) if array.ndim == 0 else _columns(exact, argument)


def post_arguments(argument: str, mode: Union[str, int], scale: Any, offset: Any, shift: Any, quant_params: Any,
                   relu: bool, relu_param: Any, rounding: Optional[str], saturate: bool, profile: str, row_max: bool,
                   row_max_init: Any, group_max: Optional[int], max_abs: bool, packed: bool) -> Dict[str, Any]:
    """The arguments of a post-process as the extension takes them; `argument` is the name of the one for the mode."""
    if isinstance(mode, str):
        mode = text(mode, argument)
    elif isinstance(mode, numbers.Integral):
        mode = count(mode, argument, 64)
    else:
        raise TypeError(f"{argument}: a name or a code, not {type(mode).__name__}")
    alphas = array_of(relu_param, "relu_param")
    if alphas.dtype == np.uint64 and alphas.ndim > 0:
        relu_param = _integers(relu_param, "relu_param", 0, (1 << 64) - 1, np.uint64)
    else:
        relu_param = _numbers(relu_param, "relu_param")
    columns = 0 if group_max is None else count(group_max, "group_max")
    if group_max is not None and columns == 0:
        raise ValueError("group_max: 0 columns")
    int64 = 1 << 63
    return {
        "argument": argument,
        "mode": mode,
        "scale": _numbers(scale, "scale"),
        "offset": _integers(offset, "offset", -int64, int64 - 1, np.int64),
        "shift": _integers(shift, "shift", -int64, int64 - 1, np.int64),
        "quant_params": _integers(quant_params, "quant_params", 0, 2 * int64 - 1, np.uint64),
        "relu": switch(relu, "relu"),
        "relu_param": relu_param,
        "rounding": optional_text(rounding, "rounding"),
        "saturate": switch(saturate, "saturate"),
        "profile": text(profile, "profile"),
        "row_max": switch(row_max, "row_max"),
        "row_max_init": accumulators(row_max_init, "row_max_init"),
        "group_max": columns,
        "max_abs": switch(max_abs, "max_abs"),
        "packed": switch(packed, "packed"),
    }


def _result(parts: Tuple[Any, Any, Any, int]) -> Result:
    d, row_max, group_max, flags = parts
    return Result(d, row_max, group_max, Flags(flags))
