// From memory through Tiles back to memory: the second program of the tutorial in docs/programs.md.

.org 0x100000
.memory 0x1000 FP16 1 2 3  4 5 6        # A, rows of 6 bytes
.memory 0x2000 FP16 1 2  3 4  5 6       # B, rows of 4 bytes
.memory 0x3000 zero 16                  # D: mapped, or the store would be a page fault
.gpr 0 a0 = 0x1000, a1 = 6, a2 = 0x2000, a3 = 4, a4 = 0x3000, a5 = 8

BSTART.TLOAD FP16                       # A: T#1
B.DATR {ND2M16, DTYPE_NONE, Zero, EQ, Default, 0, 0}
B.DIM zero, 3, ->LB0                    # columns
B.DIM zero, 2, ->LB1                    # rows
B.IOR a0, a1                            # base, stride in bytes
B.IOT mask=1000, <last>, ->T<1>
BSTART.TLOAD FP16                       # B: M#1. This BSTART completes the bundle before it.
B.DATR {ND2N8, DTYPE_NONE, Zero, EQ, Default, 0, 0}
B.DIM zero, 2, ->LB0
B.DIM zero, 3, ->LB1
B.IOR a2, a3
B.IOT mask=1000, <last>, ->M<1>
BSTART.TMATMUL FP16                     # D: U#1
B.FPATR NoQuant, 1, 0, 0, 0, 0, 0, 0, 0, 0
B.DIM zero, 2, ->LB0
B.DIM zero, 2, ->LB1
B.DIM zero, 3, ->LB2
B.IOT T#1, M#1, mask=1000, <last>, ->U<1>
BSTART.TSTORE FP32
B.DATR {M162ND, DTYPE_NONE, Null, EQ, Default, 0, 0}
B.DIM zero, 2, ->LB0
B.DIM zero, 2, ->LB1
B.IOR a4, a5
B.IOT U#1, mask=1000, <last>
BSTOP

.expect memory 0x3000 == FP32 22 28 49 64
