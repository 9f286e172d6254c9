// W2: FP16 times E4M3, one scale, conversion to FP16 and ReLU, on all PEs (architecture 8.2).

.tile all T#1 CUBE_M16 FP16 5 40 = all 2.0
.tile all T#2 CUBE_N8 E4M3 40 9 = all 0.5
.tile all T#3 CUBE_M32 E8M0 9 2 = all 2.0                   # the second group of K is short
.tile all T#4 RowMajor FP32 1 9 = 0 -100*8

BSTART.TMATMULMX.BIAS FP16
B.DATR E4M3                                                 # type of B
B.FPATR F322F16, 1, 0, 0, 0, 0, 0, 0, 0, 0                  # to FP16, ReLU
B.DIM zero, 5, ->LB0
B.DIM zero, 9, ->LB1
B.DIM zero, 40, ->LB2
B.IOT T#1, T#2, mask=1111                                   # A (FP16 has no scale) and B
B.IOT T#3, T#4, mask=1111, <last>, ->U<3>                   # scale of B, bias
BSTOP

.expect tile all U#1 CUBE_M16 FP16 5 9 capacity=512 == 80 0*8 ...   # 80, and -20 after ReLU
.expect flags none
