// W6: TMATMUL_ACC with CScale and a row maximum that starts from given values (architecture 8.6).

.tile 0 U#3 CUBE_M16 FP32 2 2 capacity=128 = all 8.0        # C
.tile 0 U#4 CUBE_M16 FP16 2 4 = all 1.0                     # A
.tile 0 U#5 CUBE_N8 FP16 4 2 = all 0.5                      # B
.tile 0 U#6 CUBE_M32 U8 2 1 = 1 3                           # C is scaled by 2^-1 and 2^-3
.tile 0 U#7 RowMajor FP32 2 1 = 100 -1                      # RowMaxIn

BSTART.TMATMUL.ACC FP16
B.FPATR NoQuant, 0, 0, 1, 0, 1, 0, 0, 0, 1                  # RowMaxEn, RowMaxInit, CScaleEn
B.DIM zero, 2, ->LB0
B.DIM zero, 2, ->LB1
B.DIM zero, 4, ->LB2
B.IOT U#3, U#4, mask=1000                                   # C, A
B.IOT U#5, U#6, mask=1000                                   # B, CScale
B.IOT U#7, mask=1000, ->T<1>                                # RowMaxIn; D
B.IOT mask=1000, <last>, ->M<1>                             # RowMaxOut
BSTOP

.expect tile 0 T#1 CUBE_M16 FP32 2 2 == 6 6 3 3             # 8/2 + 2, 8/8 + 2
.expect tile 0 M#1 RowMajor FP32 2 1 == 100 3
.expect tile 0 U#3 CUBE_M16 FP32 2 2 == all 8.0
