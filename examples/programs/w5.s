// W5: a cooperative TMATMUL whose right operand is Shared and stored transposed (architecture 8.5).

.shared S9 FP16 8 16 = 1.0*16 2.0*16 3.0*16 4.0*16 5.0*16 6.0*16 7.0*16 8.0*16    # N x K: row n is n + 1
.tile 0 M#1 CUBE_M16 FP16 16 16 = all 1.0
.tile 1 M#1 CUBE_M16 FP16 4 16 = all 1.0                    # PE2 and PE3 have no rows and need no A

BSTART.TMATMUL FP16
B.FPATR NoQuant, 0, 0, 0, 0, 0, 0, 0, 1, 0                  # TransB
B.DIM zero, 20, ->LB0
B.DIM zero, 8, ->LB1
B.DIM zero, 16, ->LB2
B.IOS S9, mask=1111
B.IOT M#1, mask=1111, <last>, ->N<3>
BSTOP

.expect tile 0 N#1 CUBE_M16 FP32 16 8 == 16 32 48 64 80 96 112 128 ...
.expect tile 1 N#1 CUBE_M16 FP32 4 8 == 16 32 48 64 80 96 112 128 ...
.expect tile 2 N#1 none
.expect tile 3 N#1 none
