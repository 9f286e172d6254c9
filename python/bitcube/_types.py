"""What the functions of bitcube take and give, as far as it is more than an array."""

from __future__ import annotations

import enum
from typing import Any, Dict, NamedTuple, Optional, Tuple

import numpy as np

Array = np.ndarray[Any, Any]


class Flags(enum.IntFlag):
    """The five sticky status bits, as CORE_STATE[36:32] has them. ``str()`` gives ``"OF NX"``, or ``"-"`` for none."""

    NV = 0x01  #: invalid
    DZ = 0x02  #: division by zero, which no rule of the model raises
    OF = 0x04  #: overflow
    UF = 0x08  #: underflow
    NX = 0x10  #: inexact

    def __str__(self) -> str:
        return " ".join(flag.name for flag in Flags if flag.name and flag in self) or "-"


class Format(NamedTuple):
    """One Tile data type. Codes are those of one lane; ``dtype`` is what arrays of it have."""

    name: str
    alias: Optional[str]
    code: int
    kind: str  #: "float", "scale", "signed" or "unsigned"
    lane_bits: int
    value_bits: int
    carrier_bits: int
    lanes_per_carrier: int
    sign_bits: int
    exponent_bits: Tuple[int, int]  #: the fewest and the most
    fraction_bits: Tuple[int, int]
    bias: int
    max_finite: int  #: code of the largest finite value
    nan: Optional[int]  #: code of the canonical NaN
    infinity: Optional[int]  #: code of +Inf
    dtype: str


class BlockFormat(NamedTuple):
    """A format in which ``group`` lanes along one axis share a scale."""

    name: str
    element: str
    group: int
    scale: str
    meaning: str


class Result(NamedTuple):
    """What the post-process delivers for an M x N matrix."""

    d: Array  #: M x N; BF16 as uint16, HiF8 and E4M3 as uint8, S4X2 as int8 or, packed, M x ceil(N / 2) of uint8
    row_max: Optional[Array]  #: M x 1 accumulators, where asked for
    group_max: Optional[Array]  #: M x ceil(N / group_max) accumulators, where asked for
    flags: Flags  #: of all elements and reductions together; the product itself records none


class ErrorReport(NamedTuple):
    """How far a quantised tensor is from its original: x is an original value, y the dequantised one, e = y - x."""

    lanes: int
    non_finite: int  #: lanes whose x or y is NaN or infinite: left out of everything below
    non_zero: int  #: lanes with x != 0
    max_relative_error: float  #: of |e| / |x| over the lanes with x != 0
    mean_relative_error: float
    max_absolute_error: float
    mean_squared_error: float
    sqnr: float  #: dB; infinite if every e is 0, NaN if no lane is finite


class Fault(Exception):
    """An architectural fault. Nothing but that it exists has changed, except with BundlePostCommit.

    It is raised, or, where a caller asked for that, returned.
    """

    def __init__(self, message: str, fault_class: str, rule: str, operand: str, pe: Optional[int], found: str,
                 legal: str) -> None:
        super().__init__(message)
        self.fault_class = fault_class  #: such as "TileLegality"
        self.rule = rule  #: id of the rule, such as "D1"
        self.operand = operand  #: what it is about, or ""
        self.pe = pe  #: whose check failed; None: the Core
        self.found = found
        self.legal = legal

    @classmethod
    def _from(cls, fault: Optional[Dict[str, Any]]) -> Optional["Fault"]:
        return None if fault is None else cls(**fault)


class Tile(NamedTuple):
    """The valid region of a Tile."""

    type: str
    layout: str
    capacity: int  #: bytes
    data: Array  #: valid rows x valid columns, one lane each, with the dtype of its format
    defined: Array  #: bool of the same shape: whether the element holds a value
    text: str  #: such as "FP32 CUBE_M16 16 x 8"
    sha256: str  #: of the elements, as `bitcube run` prints it


class Outcome(NamedTuple):
    """What one step did."""

    fault: Optional[Fault]
    waiting_for: Optional[int]  #: the Shared Tile for which the bundle waits
    completed: bool  #: the active bundle completed
    started: bool  #: a new bundle was installed
    tiles: Tuple[Tuple[int, str, str], ...]  #: (PE, name, role) of each Tile that was published
    shared: Optional[int]  #: the Shared Tile that was published
    stores: int  #: memory elements written
    flags: Flags  #: raised by the bundle


class Check(NamedTuple):
    """One expectation of a program after its turn came."""

    line: int
    text: str
    holds: bool
    message: str  #: if it does not hold: what was found instead


class RunResult(NamedTuple):
    """How a run ended."""

    end: str  #: "completed", "fault", "waiting", "limit" or "cut_off"
    steps: int
    bundles: int
    pc: int
    line: Optional[int]
    fault: Optional[Fault]  #: one that no expectation asked for
    waiting_for: Optional[int]
    checks: Tuple[Check, ...]
    failed: int
    not_reached: int
    ok: bool  #: the program ended, and every expectation holds
    trace: Tuple[str, ...]  #: JSON lines, where asked for


