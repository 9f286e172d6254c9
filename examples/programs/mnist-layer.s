// The first layer of the demo's network in HiF4, on four PEs: 128 digits times 784 x 256 weights, bias, ReLU. The bytes
// in memory at 0x800000 are those that bitcube matmul writes. Make the operands first (docs/programs.md shows how):
//
//   bitcube quantize X.npy --format hif4 --axis 1 -o x.safetensors       128 x 784: pixels / 255
//   bitcube quantize w0.npy --format hif4 --axis 0 -o w.safetensors      784 x 256
//   bitcube matmul x.safetensors w.safetensors --bias b0.npy --relu -o d.npy
//
// A Local Tile holds 64 KiB, so N goes in two halves of 128 columns: 784 x 128 lanes of B are 25 x 16 cells, 51200
// bytes. M goes in four parts of 32 rows, one per PE. K = 784 fits one bundle, and the bias joins after the last k.

.memory 0x100000 "x.safetensors" codes                      # 128 rows of 392 bytes
.memory 0x180000 "x.safetensors" scales                     # 128 rows of 13 words
.memory 0x200000 "w.safetensors" codes                      # 784 rows of 128 bytes
.memory 0x280000 "w.safetensors" scales                     # 256 columns of 13 words
.memory 0x300000 "b0.npy"
.memory 0x800000 zero 131072                                # D: 128 rows of 1024 bytes

// Each PE has its own registers: its 32 rows of X and D.
.gpr 0 a0 = 0x100000, a2 = 0x180000, s0 = 0x800000
.gpr 1 a0 = 0x103100, a2 = 0x180680, s0 = 0x808000
.gpr 2 a0 = 0x106200, a2 = 0x180D00, s0 = 0x810000
.gpr 3 a0 = 0x109300, a2 = 0x181380, s0 = 0x818000
.gpr all a1 = 392, a3 = 52, a5 = 128, a7 = 52, s1 = 1024, x1 = 512

// A and its scale serve both halves. The next BSTART completes the bundle before it.
BSTART.TLOAD HiF4X2
B.DATR {ND2M32, DTYPE_NONE, Zero, EQ, Default, 0, 0}
B.DIM 784, ->LB0
B.DIM 32, ->LB1
B.IOR a0, a1
B.IOT mask=1111, <last>, ->T<8>
BSTART.TLOAD U32
B.DATR {ND2M32, DTYPE_NONE, Zero, EQ, Default, 0, 0}
B.DIM 13, ->LB0
B.DIM 32, ->LB1
B.IOR a2, a3
B.IOT mask=1111, <last>, ->T<5>
BSTOP

// Columns 0..127.
.gpr all a4 = 0x200000, a6 = 0x280000, x0 = 0x300000
BSTART.TLOAD HiF4X2
B.DATR {ND2N8, DTYPE_NONE, Zero, EQ, Default, 0, 0}
B.DIM 128, ->LB0
B.DIM 784, ->LB1
B.IOR a4, a5
B.IOT mask=1111, <last>, ->M<10>
BSTART.TLOAD U32
B.DATR {ND2M32, DTYPE_NONE, Zero, EQ, Default, 0, 0}
B.DIM 13, ->LB0
B.DIM 128, ->LB1
B.IOR a6, a7
B.IOT mask=1111, <last>, ->M<7>
BSTART.TLOAD FP32
B.DIM 128, ->LB0
B.DIM 1, ->LB1
B.IOR x0, x1
B.IOT mask=1111, <last>, ->N<3>
BSTART.TMATMULMX.BIAS HiF4X2
B.FPATR NoQuant, 1, 0, 0, 0, 0, 0, 0, 0, 0
B.DIM 32, ->LB0
B.DIM 128, ->LB1
B.DIM 784, ->LB2
B.IOT T#2, T#1, mask=1111                                   # A, its scale: the newest Tile of a hand is #1
B.IOT M#2, M#1, mask=1111                                   # B, its scale
B.IOT N#1, mask=1111, <last>, ->U<8>                        # bias; D
BSTART.TSTORE FP32
B.DATR {M322ND, DTYPE_NONE, Null, EQ, Default, 0, 0}
B.DIM 128, ->LB0
B.DIM 32, ->LB1
B.IOR s0, s1
B.IOT U#1, mask=1111, <last>
BSTOP

// Columns 128..255: the new Tiles take the names M#1, M#2, N#1 and U#1; those of the first half are one place older.
.gpr all a4 = 0x200040, a6 = 0x281A00, x0 = 0x300200
.gpr 0 s0 = 0x800200
.gpr 1 s0 = 0x808200
.gpr 2 s0 = 0x810200
.gpr 3 s0 = 0x818200
BSTART.TLOAD HiF4X2
B.DATR {ND2N8, DTYPE_NONE, Zero, EQ, Default, 0, 0}
B.DIM 128, ->LB0
B.DIM 784, ->LB1
B.IOR a4, a5
B.IOT mask=1111, <last>, ->M<10>
BSTART.TLOAD U32
B.DATR {ND2M32, DTYPE_NONE, Zero, EQ, Default, 0, 0}
B.DIM 13, ->LB0
B.DIM 128, ->LB1
B.IOR a6, a7
B.IOT mask=1111, <last>, ->M<7>
BSTART.TLOAD FP32
B.DIM 128, ->LB0
B.DIM 1, ->LB1
B.IOR x0, x1
B.IOT mask=1111, <last>, ->N<3>
BSTART.TMATMULMX.BIAS HiF4X2
B.FPATR NoQuant, 1, 0, 0, 0, 0, 0, 0, 0, 0
B.DIM 32, ->LB0
B.DIM 128, ->LB1
B.DIM 784, ->LB2
B.IOT T#2, T#1, mask=1111
B.IOT M#2, M#1, mask=1111
B.IOT N#1, mask=1111, <last>, ->U<8>
BSTART.TSTORE FP32
B.DATR {M322ND, DTYPE_NONE, Null, EQ, Default, 0, 0}
B.DIM 128, ->LB0
B.DIM 32, ->LB1
B.IOR s0, s1
B.IOT U#1, mask=1111, <last>
BSTOP

.expect memory 0x800000 == "d.npy"
