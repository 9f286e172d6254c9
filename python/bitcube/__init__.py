"""bitcube: a bit-exact model of the PTO CUBE matrix unit and its number formats.

Everything is computed by the C++ library, bit for bit and flag for flag as the program `bitcube` does it:

    import bitcube
    codes, flags = bitcube.convert(x, to="hif8")
    q = bitcube.quantize(w, "hif4", axis=0)
    d = bitcube.matmul(x, w).d

Arrays may have any layout and byte order; they are copied where they are not C-contiguous and little-endian. Errors
are ValueError, TypeError for what is of the wrong type, and Fault from the Machine. Long calls release the GIL.
`python3 -m bitcube` is the program.
"""

from ._bitcube import __version__
from ._explain import Explanation, explain, explain_matmul, explain_postprocess
from ._diff import Diagnosis, Difference, diff
from ._functions import (QuantizedTensor, block_formats, choices, convert, formats, load, matmul, names, postprocess,
                         quantize)
from ._machine import Machine, Program, assemble, assemble_bytes, disassemble
from ._types import BlockFormat, Check, ErrorReport, Fault, Flags, Format, Outcome, Result, RunResult, Tile

__all__ = [
    "BlockFormat", "Check", "Diagnosis", "Difference", "ErrorReport", "Explanation", "Fault", "Flags", "Format",
    "Machine", "Outcome", "Program", "QuantizedTensor", "Result", "RunResult", "Tile", "__version__", "assemble",
    "assemble_bytes", "block_formats", "choices", "convert", "diff", "disassemble", "explain", "explain_matmul",
    "explain_postprocess", "formats", "load", "matmul", "names", "postprocess", "quantize"
]
