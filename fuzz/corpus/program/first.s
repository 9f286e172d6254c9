// The product of two small matrices in Local Tiles: the first program of the tutorial in docs/programs.md.

.tile 0 T#1 CUBE_M16 FP16 2 3 = 1 2 3  4 5 6
.tile 0 T#2 CUBE_N8  FP16 3 2 = 1 2  3 4  5 6

BSTART.TMATMUL FP16
B.FPATR NoQuant, 0, 0, 0, 0, 0, 0, 0, 0, 0
B.DIM zero, 2, ->LB0                    # M
B.DIM zero, 2, ->LB1                    # N
B.DIM zero, 3, ->LB2                    # K
B.IOT T#1, T#2, mask=1000, <last>, ->U<1>
BSTOP

.expect tile 0 U#1 CUBE_M16 FP32 2 2 == 22 28 49 64
