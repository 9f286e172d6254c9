// A refused bundle leaves everything as it was and can be tried again after the cause is repaired (architecture 2.13).

.tile 0 T#1 CUBE_M16 E4M3 16 32 = all 1.0
.undefine 0 T#1 3 3                                         # one element of A holds no value
.tile 0 T#2 CUBE_M32 E8M0 16 1 = all 1.0
.tile 0 T#3 CUBE_N8 E4M3 32 8 = all 0.5
.tile 0 T#4 CUBE_M32 E8M0 8 1 = all 1.0
.tile 0 T#5 RowMajor FP32 1 8 = all 0

BSTART.TMATMULMX.BIAS E4M3
B.FPATR NoQuant, 0, 0, 0, 0, 0, 0, 0, 0, 0
B.DIM zero, 16, ->LB0
B.DIM zero, 8, ->LB1
B.DIM zero, 32, ->LB2
B.IOT T#1, T#2, mask=1000
B.IOT T#3, T#4, mask=1000
B.IOT T#5, mask=1000, <last>, ->U<3>
BSTOP
.expect fault TileLegality F7 PE0
.expect unchanged

.tile 0 T#1 CUBE_M16 E4M3 16 32 = all 1.0
BSTOP
.expect tile 0 U#1 CUBE_M16 FP32 16 8 == all 16
