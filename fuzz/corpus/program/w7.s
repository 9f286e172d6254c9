// W7: TMATMUL_BIAS of S8 with requantisation and leaky ReLU by scalars, and GroupMax (architecture 8.7).

.gpr 0 a0 = 0x00003FA03F000000, a1 = 0x000000000001F400     # scale 0.5 and offset -3; slope 0.25
.tile 0 T#1 CUBE_M16 S8 4 16 = all 2
.tile 0 T#2 CUBE_N8 S8 16 8 = all 3
.tile 0 T#3 RowMajor S32 1 8 = 0 -200 ...

BSTART.TMATMUL.BIAS S8
B.DATR S8, Sat=1
B.FPATR REQ8, 2, 1, 0, 1, 0, 0, 0, 0, 0                     # REQ8, LReLU, groups of 8 columns, GroupMaxEn
B.DIM zero, 4, ->LB0
B.DIM zero, 8, ->LB1
B.DIM zero, 16, ->LB2
B.IOR a0, a1
B.IOT T#1, T#2, mask=1000
B.IOT T#3, mask=1000, ->U<1>
B.IOT mask=1000, <last>, ->N<1>                             # GroupMaxOut
BSTOP

.expect tile 0 U#1 CUBE_M16 S8 4 8 == 45 -29 ...            # 96 * 0.5 - 3, -104 * 0.25 - 3
.expect tile 0 N#1 RowMajor S32 4 1 == all 96               # of the raw accumulator
