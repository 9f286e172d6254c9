"""The Core: programs in, Tiles and faults out."""

from __future__ import annotations

import os
import threading
from typing import Any, Dict, List, Optional, Tuple, Union

import numpy as np

from . import _bitcube
from ._arrays import count, encoded_path, format_named, octets, optional_text, switch, typed
from ._arrays import text as text_of
from ._types import Array, Check, Fault, Flags, Outcome, RunResult, Tile

_U64 = 1 << 64


def assemble(text: str) -> List[int]:
    """The words of an assembly text, whose instructions stand on lines of their own or between ``;``.

    Raises ValueError, whose message starts with "LINE:COLUMN: ".
    """
    return _bitcube.assemble(text_of(text, "text"))


def assemble_bytes(text: str) -> bytes:
    """The same words as they stand in memory."""
    return _bitcube.assemble_bytes(text_of(text, "text"))


def disassemble(data: bytes) -> List[str]:
    """Canonical text of each instruction; what is none comes as data directives."""
    return _bitcube.disassemble(octets(data, "data"))


class Program:
    """A program with its directives and expectations, ready to run."""

    __slots__ = ("_program",)

    def __init__(self, text: str, name: str = "program", directory: Union[str, "os.PathLike[str]"] = "") -> None:
        """From a text. Files that directives name are found relative to ``directory``. Raises ValueError."""
        self._program = _bitcube.Program.parse(text_of(text, "text"), text_of(name, "name"),
                                               encoded_path(directory, "directory"))

    @classmethod
    def load(cls, path: Union[str, "os.PathLike[str]"]) -> "Program":
        """From a file of text, or of words. Raises ValueError."""
        self = object.__new__(cls)
        self._program = _bitcube.Program.load(encoded_path(path))
        return self

    @property
    def name(self) -> str:
        return self._program.name

    @property
    def origin(self) -> int:
        """Address of the first word."""
        return self._program.origin

    @property
    def expectations(self) -> int:
        """How many there are in the text."""
        return self._program.expectations

    @property
    def bytes(self) -> bytes:
        return self._program.bytes

    @property
    def lines(self) -> List[Tuple[int, int, str]]:
        """(address, word, canonical text) of each instruction."""
        return self._program.lines


class Machine:
    """A Core of four PEs. Calls on one machine from several threads take turns.

    name_policy           "relative": T#1 is the newest Tile of its hand; "absolute": a physical register
    wait_on_pending       an unready Shared source keeps the bundle pending instead of faulting
    coop_exact_columns    Shared operands of a product: physical columns equal the valid ones
    aux_exact_columns     GroupMaxOut likewise
    gemv_hif4             TGEMV_MX takes HiF4X2
    strict_reserved_bits  a source-only B.IOT with bits 8:7 set is illegal
    scalar_pe             whose GPRs B.DIM reads
    accumulate, profile   accumulation and conversion profile
    """

    __slots__ = ("_core", "_lock")

    def __init__(self, *, name_policy: str = "relative", wait_on_pending: bool = False,
                 coop_exact_columns: bool = False, aux_exact_columns: bool = False, gemv_hif4: bool = True,
                 strict_reserved_bits: bool = True, scalar_pe: int = 0, accumulate: str = "fma",
                 profile: str = "pto") -> None:
        self._lock = threading.RLock()
        self._core = _bitcube.Core.make({
            "name_policy": text_of(name_policy, "name_policy"),
            "wait_on_pending": switch(wait_on_pending, "wait_on_pending"),
            "coop_exact_columns": switch(coop_exact_columns, "coop_exact_columns"),
            "aux_exact_columns": switch(aux_exact_columns, "aux_exact_columns"),
            "gemv_hif4": switch(gemv_hif4, "gemv_hif4"),
            "strict_reserved_bits": switch(strict_reserved_bits, "strict_reserved_bits"),
            "scalar_pe": count(scalar_pe, "scalar_pe"),
            "accumulate": text_of(accumulate, "accumulate"),
            "profile": text_of(profile, "profile"),
        })

    # ---- Execution

    def step(self, instruction: Union[int, str, None] = None, *, faults: str = "raise") -> Outcome:
        """Executes one instruction at the PC: a word, the text of one, or None for what is in memory there.

        Raises Fault, or with ``faults="return"`` puts it into the outcome; ValueError for a text that is not one
        instruction.
        """
        raising = _raises(faults)
        if isinstance(instruction, str):
            words = _bitcube.assemble(text_of(instruction, "instruction"))
            if len(words) != 1:
                raise ValueError(f"instruction: the text has {len(words)} instructions; a step takes one")
            instruction = words[0]
        with self._lock:
            if instruction is None:
                outcome = self._core.step()
            else:
                outcome = self._core.step_word(count(instruction, "instruction", _U64))
        outcome["fault"] = Fault._from(outcome["fault"])
        outcome["flags"] = Flags(outcome["flags"])
        if raising and outcome["fault"] is not None:
            raise outcome["fault"]
        return Outcome(**outcome)

    def run(self, program: Union[Program, str, "os.PathLike[str]"], *, max_steps: int = 10_000_000,
            faults: str = "raise", trace: bool = False) -> RunResult:
        """Puts a program into memory and runs it to its end: a Program, a text, or a path (as pathlib.Path).

        Raises Fault for one that no expectation asks for, or with ``faults="return"`` puts it into the result;
        ValueError for a text that is no program. Expectations that do not hold raise nothing: see ``ok``.
        """
        raising = _raises(faults)
        if isinstance(program, str):
            program = Program(text_of(program, "program"))
        elif not isinstance(program, Program):
            program = Program.load(encoded_path(program, "program"))
        with self._lock:
            result = self._core.run(program._program, count(max_steps, "max_steps", _U64), switch(trace, "trace"))
        result["fault"] = Fault._from(result["fault"])
        result["checks"] = tuple(Check(*check) for check in result["checks"])
        if raising and result["fault"] is not None:
            raise result["fault"]
        return RunResult(**result)

    # ---- Tiles

    def tile(self, pe: int, name: str) -> Optional[Tile]:
        """The Tile that this Local name, such as ``"T#1"``, finds in a PE; None where there is none."""
        with self._lock:
            return _tile(self._core.tile(count(pe, "pe"), text_of(name, "name")))

    def set_tile(self, pe: int, name: str, data: Any, layout: str, type: Optional[str] = None, *, columns: int = 0,
                 capacity: int = 0) -> None:
        """Puts a Tile there whose valid region is ``data``, rows x columns.

        layout    RowMajor, ColumnMajor, ZN, NZ, CUBE_M16, CUBE_M32 or CUBE_N8
        type      what the elements are; None: what the dtype says
        columns   physical ones of an ordinary layout; 0: the next power of two
        capacity  bytes; 0: the smallest that holds it

        Raises ValueError for a shape or capacity that is not legal.
        """
        words, source = _tile_words(data, type)
        with self._lock:
            self._core.set_tile(count(pe, "pe"), text_of(name, "name"), words, source, text_of(layout, "layout"),
                                count(columns, "columns"), count(capacity, "capacity"))

    def shared(self, name: str) -> Optional[Tile]:
        """The Shared Tile of this name, ``"S0"`` to ``"S63"``; None where there is none."""
        with self._lock:
            return _tile(self._core.shared(text_of(name, "name")))

    def shared_ready(self, name: str) -> bool:
        """Whether a bundle may read it."""
        with self._lock:
            return self._core.shared_ready(text_of(name, "name"))

    def set_shared(self, name: str, data: Any, layout: str, type: Optional[str] = None, *, columns: int = 0,
                   capacity: int = 0) -> None:
        """Publishes a complete Shared Tile; arguments as with :meth:`set_tile`."""
        words, source = _tile_words(data, type)
        with self._lock:
            self._core.set_shared(text_of(name, "name"), words, source, text_of(layout, "layout"),
                                  count(columns, "columns"), count(capacity, "capacity"))

    def set_pending(self, name: str) -> None:
        """Takes readiness away from a Shared Tile."""
        with self._lock:
            self._core.set_pending(text_of(name, "name"))

    def local_pool(self, pe: int) -> int:
        """Bytes that the live Tiles of a PE take."""
        with self._lock:
            return self._core.local_pool(count(pe, "pe"))

    def shared_pool(self) -> int:
        """Bytes that the Shared Tiles take."""
        with self._lock:
            return self._core.shared_pool()

    # ---- Registers and memory

    def gpr(self, pe: int, name: str) -> int:
        """A general register by name, such as ``"a0"``."""
        with self._lock:
            return self._core.gpr(count(pe, "pe"), text_of(name, "name"))

    def set_gpr(self, pe: int, name: str, value: int) -> None:
        with self._lock:
            self._core.set_gpr(count(pe, "pe"), text_of(name, "name"), count(value, "value", _U64))

    def map(self, address: int, size: int) -> None:
        """Maps the pages of a range; bytes that nobody wrote are 0."""
        with self._lock:
            self._core.map(count(address, "address", _U64), count(size, "size", _U64))

    def read(self, address: int, size: int) -> bytes:
        """Bytes of memory. Raises ValueError where a page is not mapped."""
        with self._lock:
            return self._core.read(count(address, "address", _U64), count(size, "size", _U64))

    def write(self, address: int, data: Any) -> None:
        """Writes bytes, or the bytes of an array in C order, and maps what is missing."""
        payload = octets(data, "data")
        with self._lock:
            self._core.write(count(address, "address", _U64), payload)

    @property
    def pc(self) -> int:
        """Address of the next instruction."""
        with self._lock:
            return self._core.pc

    @pc.setter
    def pc(self, address: int) -> None:
        with self._lock:
            self._core.pc = count(address, "pc", _U64)

    @property
    def flags(self) -> Flags:
        """The sticky status."""
        with self._lock:
            return Flags(self._core.flags)

    @property
    def bundle_open(self) -> bool:
        """Whether a bundle has begun and not completed."""
        with self._lock:
            return self._core.bundle_open

    # ---- The whole

    def save(self) -> str:
        """The whole state as JSON text, as ``bitcube run --dump-state`` writes it."""
        with self._lock:
            return self._core.save()

    def restore(self, text: str, name: str = "state") -> None:
        """The inverse. Raises ValueError, whose message names the place in the text; then nothing has changed."""
        with self._lock:
            self._core.restore(text_of(text, "text"), text_of(name, "name"))

    def copy(self) -> "Machine":
        """A machine of its own in the same state."""
        other = object.__new__(Machine)
        other._lock = threading.RLock()
        with self._lock:
            other._core = self._core.copy()
        return other

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, Machine):
            return NotImplemented
        theirs = other.copy()
        with self._lock:
            return self._core == theirs._core

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<bitcube.Machine at PC 0x{self.pc:X}, flags {self.flags}>"


def _raises(faults: str) -> bool:
    if text_of(faults, "faults") not in ("raise", "return"):
        raise ValueError(f"faults: {faults!r} is neither 'raise' nor 'return'")
    return faults == "raise"


def _tile(tile: Optional[Dict[str, Any]]) -> Optional[Tile]:
    return None if tile is None else Tile(**tile)


def _tile_words(data: Any, type_: Optional[str]) -> Tuple[Array, str]:
    array, source = typed(data, "data", optional_text(type_, "type"), "type")
    if array.ndim != 2:
        raise ValueError(f"data: a Tile has rows and columns, but this has shape {array.shape}")
    f = format_named("type", source)
    codes = array.view(f"<u{array.itemsize}").astype(np.uint64)
    return codes & np.uint64((1 << f.lane_bits) - 1), source
