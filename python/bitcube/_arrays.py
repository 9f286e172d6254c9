"""Arrays of any layout as the extension wants them: C order, little-endian, and a name for what the elements are."""

from __future__ import annotations

import numbers
import operator
import os
from typing import Any, Optional, Tuple, Union

import numpy as np

from . import _bitcube
from ._types import Array, Format

_FORMATS = {f["name"]: Format(**f) for f in _bitcube.formats()}

# What elements are where nobody says otherwise.
_NATIVE = {
    "float64": "FP64", "float32": "FP32", "float16": "FP16", "bfloat16": "BF16",
    "int64": "S64", "int32": "S32", "int16": "S16", "int8": "S8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8",
}


def encoded_path(path: Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"], argument: str = "path") -> bytes:
    """What the system calls a path. One with a NUL would end there, and name another file."""
    try:
        encoded = os.fsencode(path)
    except TypeError:
        raise TypeError(f"{argument}: a str, bytes or path, not {type(path).__name__}") from None
    except UnicodeEncodeError:
        raise ValueError(f"{argument}: {path!r} has a character that no file name has") from None
    if b"\0" in encoded:
        raise ValueError(f"{argument}: {path!r} has a NUL character in it")
    return encoded


def format_named(argument: str, name: Any) -> Format:
    return _FORMATS[_bitcube.format(argument, text(name, argument))["name"]]


def array_of(x: Any, argument: str) -> Array:
    """numpy.asarray(), which would read what a mask hides."""
    if _is_masked(x):
        raise ValueError(f"{argument}: masked arrays are not supported; fill them with {argument}.filled(...)")
    try:
        return np.asarray(x)
    except ValueError as fault:
        raise ValueError(f"{argument}: {fault}") from None


def _is_masked(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return any(_is_masked(part) for part in x)
    return isinstance(x, np.ma.MaskedArray)


def words(x: Any, argument: str) -> Tuple[Array, str]:
    """The array in C order and little-endian, and the name of its dtype; bfloat16 of ml_dtypes as uint16."""
    array = array_of(x, argument)
    name = array.dtype.name
    if name not in _NATIVE:
        raise TypeError(f"{argument}: {name} elements; accepted are float16, float32, float64, bfloat16 and integers")
    if name == "bfloat16":
        array = array.view(np.uint16)
    # Shape stays as it is, which ascontiguousarray() does not promise for 0-d arrays.
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C"), name


def typed(x: Any, argument: str, from_: Optional[str], from_argument: str = "from_") -> Tuple[Array, str]:
    """The same, and the format of the elements: what `from_` says, or what the dtype means."""
    array, dtype = words(x, argument)
    if from_ is None:
        return array, _NATIVE[dtype]
    f = format_named(from_argument, from_)
    if f.carrier_bits != 8 * array.itemsize:
        raise TypeError(f"{from_argument}: {dtype} elements have {8 * array.itemsize} bits, but a lane of {f.name} has "
                        f"{f.carrier_bits} in memory")
    check_lanes(array, f, argument)
    return array, f.name


def check_lanes(array: Array, f: Format, argument: str) -> None:
    """Lanes of 4 bits in bytes: what is above a lane must be zeros, or in signed arrays copies of the sign."""
    if f.lanes_per_carrier == 1:
        return
    half = 1 << (f.lane_bits - 1)
    low, high = (-half, half - 1) if array.dtype.kind == "i" else (0, 2 * half - 1)
    odd = np.flatnonzero((array < low) | (array > high))
    if odd.size:
        word = int(array.ravel()[odd[0]]) & 0xFF
        raise ValueError(f"{argument}: element {odd[0]} is 0x{word:02X}, beyond a lane of {f.name}")


def accumulators(x: Any, argument: str) -> Optional[Array]:
    return None if x is None else words(x, argument)[0]


def integer(value: Any, argument: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{argument}: an int, not {type(value).__name__}") from None


def count(value: Any, argument: str, limit: int = 1 << 31) -> int:
    """A number of things, from 0 on."""
    number = integer(value, argument)
    if not 0 <= number < limit:
        raise ValueError(f"{argument}: {number} is outside of 0 to {limit - 1}")
    return number


def switch(value: Any, argument: str) -> bool:
    """True or False, which may be NumPy's or 1 and 0. The truth of anything else is more likely a mistake."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    number = integer(value, argument) if isinstance(value, numbers.Integral) else None
    if number not in (0, 1):
        raise TypeError(f"{argument}: True or False, not {value!r}")
    return bool(number)


def text(value: Any, argument: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{argument}: a str, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{argument}: {value!r} has a character that is no character of Unicode") from None
    return value


def optional_text(value: Any, argument: str) -> Optional[str]:
    return None if value is None else text(value, argument)


def octets(data: Any, argument: str) -> bytes:
    """The bytes of a buffer, such as bytes or an array, in C order."""
    if isinstance(data, np.ndarray):
        data = array_of(data, argument)
        if data.dtype.hasobject:
            raise TypeError(f"{argument}: elements that are Python objects have no bytes of their own")
        return data.tobytes()
    try:
        return memoryview(data).tobytes()
    except TypeError:
        raise TypeError(f"{argument}: bytes or an array, not {type(data).__name__}") from None
