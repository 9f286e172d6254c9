// W4: a cooperative TMATMUL_MX_BIAS with all operands Shared: 40 rows on four PEs (architecture 8.4).

.shared S4 E4M3 40 32 capacity=2048 = all 1.0               # A
.shared S5 E8M0 40 1 columns=1 capacity=128 = 1.0*32 2.0*8  # its scale
.shared S6 E4M3 32 16 = all 1.0                             # B
.shared S7 E8M0 1 16 = all 1.0                              # its scale: groups of K by columns
.tile 0 T#1 RowMajor FP32 1 16 = all 0                      # bias of each PE
.tile 1 T#1 RowMajor FP32 1 16 = all 1
.tile 2 T#1 RowMajor FP32 1 16 = all 2
.tile 3 T#1 RowMajor FP32 1 16 = all 3
.expect pool 3 == 128

BSTART.TMATMULMX.BIAS E4M3
B.FPATR NoQuant, 0, 0, 0, 0, 0, 0, 0, 0, 0
B.DIM zero, 40, ->LB0                                       # group_M: the rows of all PEs together
B.DIM zero, 16, ->LB1
B.DIM zero, 32, ->LB2
B.IOS S4, mask=1111
B.IOS S5, mask=1111
B.IOS S6, mask=1111
B.IOS S7, mask=1111
B.IOT T#1, mask=1111, <last>, ->U<4>
BSTOP

.expect tile 0 U#1 CUBE_M16 FP32 16 16 capacity=1024 == all 32
.expect tile 1 U#1 CUBE_M16 FP32 16 16 == all 33
.expect tile 2 U#1 CUBE_M16 FP32 8 16 == all 66             # rows 32..39
.expect tile 3 U#1 none                                     # no row is left for PE3
.expect pool 3 == 128
.expect shared S4 E4M3 40 32 == all 1.0
