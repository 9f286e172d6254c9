// W1: a Local TMATMUL_MX_BIAS, E4M3 times E4M3 with two scales, on PE0 alone (architecture 8.1).
//
//   D[i][j] = 16 * 2^(i mod 3) * (j even ? 0.5 : 2) + j

.tile 0 T#1 CUBE_M16 E4M3 16 32 = all 1.0
.tile 0 T#2 CUBE_M32 E8M0 16 1 = 1 2 4 ...                  # 2^(i mod 3): one scale per row and 32 columns of A
.tile 0 T#3 CUBE_N8 E4M3 32 8 = all 0.5
.tile 0 T#4 CUBE_M32 E8M0 8 1 = 0.5 2 ...                   # row n: the scale of column n of B
.tile 0 T#5 RowMajor FP32 1 8 columns=8 capacity=128 = 0 1 2 3 4 5 6 7
.expect pool 0 == 1152

BSTART.TMATMULMX.BIAS E4M3
B.FPATR NoQuant, 0, 0, 0, 0, 0, 0, 0, 0, 0
B.DIM zero, 16, ->LB0                                       # M
B.DIM zero, 8, ->LB1                                        # N
B.DIM zero, 32, ->LB2                                       # K
B.IOT T#1, T#2, mask=1000                                   # A and its scale
B.IOT T#3, T#4, mask=1000                                   # B and its scale
B.IOT T#5, mask=1000, <last>, ->U<3>                        # bias; D gets 128 << 2 bytes
BSTOP

.expect tile 0 U#1 CUBE_M16 FP32 16 8 capacity=512 == \
   8 33 10 35 12 37 14 39  16 65 18 67 20 69 22 71  32 129 34 131 36 133 38 135 ...
.expect tile 0 T#1 CUBE_M16 E4M3 16 32 == all 1.0           # sources stay
.expect pool 0 == 1664
.expect flags none
