// W3: HiF4 times HiF4 with the U32 scale words of groups of 64 (architecture 8.3).

.tile 0 M#1 CUBE_M16 HiF4X2 16 64 = all 1.0
.tile 0 M#2 CUBE_M32 U32 16 1 = all 0x000000C0              # E6M2 1.0, no micro-exponents
.tile 0 N#1 CUBE_N8 HiF4X2 64 8 = all 1.5
.tile 0 N#2 CUBE_M32 U32 8 1 = all 0x002002C0               # lanes 8..15 and 20..23 count twice
.tile 0 T#5 RowMajor FP32 1 8 = all 0

BSTART.TMATMULMX.BIAS HiF4X2
B.FPATR NoQuant, 0, 0, 0, 0, 0, 0, 0, 0, 0
B.DIM zero, 16, ->LB0
B.DIM zero, 8, ->LB1
B.DIM zero, 64, ->LB2
B.IOT M#1, M#2, mask=1000
B.IOT N#1, N#2, mask=1000
B.IOT T#5, mask=1000, <last>, ->U<3>
BSTOP

.expect tile 0 U#1 CUBE_M16 FP32 16 8 == all 114.0          # 64 * 1.5 + 8 * 1.5 + 4 * 1.5
