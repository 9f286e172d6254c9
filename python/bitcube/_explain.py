"""Every step of one result."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union, overload

from . import _bitcube
from ._arrays import accumulators, count, format_named, integer, optional_text, switch, text, typed
from ._functions import accumulator_matrix, post_arguments, quantizable, side
from ._machine import Program


class Explanation:
    """What :func:`explain`, :func:`explain_matmul` and :func:`explain_postprocess` found. ``str()`` is the text that
    ``bitcube explain`` prints.

    ``sections`` is a list of dicts with ``title`` and, where there are some, ``clause``, ``facts``, ``tables`` and
    ``remarks``; ``results`` is a list of facts, of which the last one is the result. Facts have ``name``, ``value`` and
    perhaps ``remark``; tables have ``header``, ``rows`` and perhaps ``title``.
    """

    __slots__ = ("_text", "_document")

    def __init__(self, text: str, document: str) -> None:
        self._text = text
        self._document: Dict[str, Any] = json.loads(document)

    @property
    def title(self) -> str:
        title: str = self._document["title"]
        return title

    @property
    def sections(self) -> List[Dict[str, Any]]:
        sections: List[Dict[str, Any]] = self._document["sections"]
        return sections

    @property
    def results(self) -> List[Dict[str, str]]:
        results: List[Dict[str, str]] = self._document["results"]
        return results

    @property
    def result(self) -> str:
        """The last result: that of the library."""
        return self.results[-1]["value"]

    def to_dict(self) -> Dict[str, Any]:
        """What ``bitcube explain --json`` prints."""
        document: Dict[str, Any] = json.loads(json.dumps(self._document))
        return document

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<Explanation: {self.title}>"


@overload
def explain(x: Any, *, to: str, rounding: Optional[str] = None, saturate: bool = False, profile: str = "pto",
            from_: Optional[str] = None) -> Explanation: ...
@overload
def explain(x: Any, *, format: str, at: Union[int, Sequence[int]], axis: int = -1, profile: Optional[str] = None,
            scale: Optional[str] = None, rounding: Optional[str] = None, tensor_scale: bool = False,
            from_: Optional[str] = None, source_type: Optional[str] = None) -> Explanation: ...
@overload
def explain(*, word: int) -> Explanation: ...
@overload
def explain(*, program: Program, all: bool = False, max_steps: int = 10_000_000) -> Explanation: ...
def explain(x: Any = None, **arguments: Any) -> Explanation:
    """Explains one result of the library, step by step. What it explains follows from the arguments:

    ``explain(x, to="e4m3")``
        the conversion of one element, with the arguments of :func:`convert`: neighbours, distances, who decided, flags,
        and what every other mode and profile gives. A str is an exact number, as ``bitcube convert`` reads it.
    ``explain(w, format="hif4", at=(3, 129))``
        how the element at that index is quantised, with the arguments of :func:`quantize`.
    ``explain(word=0x38531181)``
        the fields of an instruction word, or why it is none.
    ``explain(program=Program.load("prog.s"))``
        the first fault of a program, or with ``all=True`` every one.

    Raises ValueError and TypeError as those functions do, and TypeError for arguments that do not belong together.
    """
    kinds: Dict[str, Callable[..., Any]] = {"to": _convert, "format": _quantize, "word": _word,
                                            "program": _program}
    given = [name for name in kinds if name in arguments]
    if len(given) != 1:
        raise TypeError("explain: needs one of to= (a conversion), format= (a quantisation), word= and program="
                        + (f", not {' and '.join(given)}" if given else ""))
    if (x is None) == (given[0] in ("to", "format")):
        raise TypeError(f"x: {given[0]}= {'needs one' if x is None else 'takes none'}")
    values = () if x is None else (x,)
    return Explanation(*kinds[given[0]](*values, **arguments))


def _convert(x: Any, *, to: str, rounding: Optional[str] = None, saturate: bool = False, profile: str = "pto",
             from_: Optional[str] = None) -> Any:
    options = (format_named("to", to).name, optional_text(rounding, "rounding"), switch(saturate, "saturate"),
               text(profile, "profile"))
    if isinstance(x, str):
        if from_ is not None:
            raise TypeError("from_: a str is an exact number, which has no format")
        try:
            return _bitcube.explain_convert(None, "", text(x, "x"), *options)
        except ValueError as fault:
            raise ValueError(f"x: {fault}") from None
    array, source = typed(x, "x", optional_text(from_, "from_"))
    if array.size != 1:
        raise ValueError(f"x: one element is explained, not {array.size}; choose one, as in x[3, 129]")
    return _bitcube.explain_convert(array, source, "", *options)


def _quantize(x: Any, *, format: str, at: Any, axis: int = -1, profile: Optional[str] = None,
              scale: Optional[str] = None, rounding: Optional[str] = None, tensor_scale: bool = False,
              from_: Optional[str] = None, source_type: Optional[str] = None) -> Any:
    array, source, line = quantizable(x, axis, from_)
    numbers = [integer(i, "at") for i in (at if isinstance(at, (tuple, list)) else (at,))]
    if len(numbers) != array.ndim or not all(0 <= i < n for i, n in zip(numbers, array.shape)):
        raise ValueError(f"at: {at} is not in an array of shape {array.shape}; indices count from 0")
    return _bitcube.explain_quantize(array, source, numbers, line, text(format, "format"),
                                     optional_text(profile, "profile"), optional_text(scale, "scale"),
                                     optional_text(rounding, "rounding"), switch(tensor_scale, "tensor_scale"),
                                     optional_text(source_type, "source_type"))


def _word(*, word: int) -> Any:
    return _bitcube.explain_word(count(word, "word", 1 << 64))


def _program(*, program: Program, all: bool = False, max_steps: int = 10_000_000) -> Any:
    if not isinstance(program, Program):
        raise TypeError(f"program: a Program, not {type(program).__name__}")
    return _bitcube.explain_fault(program._program, switch(all, "all"), count(max_steps, "max_steps", 1 << 62))


def explain_matmul(a: Any, b: Any, at: Tuple[int, int], bias: Any = None, c: Any = None, accumulate: str = "fma", *,
                   steps: bool = False, a_type: Optional[str] = None, b_type: Optional[str] = None,
                   a_scales: Any = None, b_scales: Any = None, pre_quant: Union[str, int] = "NoQuant",
                   scale: Any = None, offset: Any = None, shift: Any = None, quant_params: Any = None,
                   relu: bool = False, relu_param: Any = None, rounding: Optional[str] = None, saturate: bool = False,
                   profile: str = "pto", row_max: bool = False, row_max_init: Any = None,
                   group_max: Optional[int] = None, max_abs: bool = False) -> Explanation:
    """How element ``at`` of :func:`bitcube.matmul` came about, from the lanes to D.

    at     (row, column) of D, from 0
    steps  lane by lane instead of group by group

    All else is as there, and so are the errors; ValueError also for an element outside of D. Only what the element
    and its reductions need is computed.
    """
    post = post_arguments("pre_quant", pre_quant, scale, offset, shift, quant_params, relu, relu_param, rounding,
                          saturate, profile, row_max, row_max_init, group_max, max_abs, False)
    sides = (side(a, "a", a_type, a_scales), side(b, "b", b_type, b_scales))
    return Explanation(*_bitcube.explain_matmul(*sides, accumulators(c, "c"), accumulators(bias, "bias"),
                                                text(accumulate, "accumulate"), post, *_element(at),
                                                switch(steps, "steps")))


def explain_postprocess(acc: Any, at: Tuple[int, int], mode: Union[str, int] = "NoQuant", *, scale: Any = None,
                        offset: Any = None, shift: Any = None, quant_params: Any = None, relu: bool = False,
                        relu_param: Any = None, rounding: Optional[str] = None, saturate: bool = False,
                        profile: str = "pto", row_max: bool = False, row_max_init: Any = None,
                        group_max: Optional[int] = None, max_abs: bool = False) -> Explanation:
    """How element ``at``, (row, column) from 0, of :func:`bitcube.postprocess` came about.

    Arguments and errors are those of that function; ValueError also for an element outside of D.
    """
    array, kind = accumulator_matrix(acc)
    post = post_arguments("mode", mode, scale, offset, shift, quant_params, relu, relu_param, rounding, saturate,
                          profile, row_max, row_max_init, group_max, max_abs, False)
    return Explanation(*_bitcube.explain_postprocess(array, kind, post, *_element(at)))


def _element(at: Any) -> Tuple[int, int]:
    """Row and column of `at`."""
    if not isinstance(at, (tuple, list)) or len(at) != 2:
        raise TypeError(f"at: (row, column), not {at!r}")
    return count(at[0], "at", 1 << 63), count(at[1], "at", 1 << 63)
