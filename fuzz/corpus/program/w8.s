// W8: TGEMV_MX_BIAS, a packed E2M1 vector times an FP16 matrix (architecture 8.8).

.tile 0 T#1 CUBE_M16 E2M1X2 1 32 = all 1.0
.tile 0 T#2 CUBE_M32 E8M0 1 1 = 2.0
.tile 0 T#3 CUBE_N8 FP16 32 8 = all 1.5
.tile 0 T#4 RowMajor FP32 1 8 = all 4.0

BSTART.TGEMVMX.BIAS E2M1X2
B.DATR FP16
B.FPATR NoQuant, 0, 0, 0, 0, 0, 0, 0, 0, 0
B.DIM zero, 8, ->LB1                                        # LB0 is left out: M = 1
B.DIM zero, 32, ->LB2
B.IOT T#1, T#2, mask=1000
B.IOT T#3, T#4, mask=1000, <last>, ->U<3>
BSTOP

.expect tile 0 U#1 CUBE_M16 FP32 1 8 capacity=512 == all 100    # 32 * 2 * 1.5 + 4
