// W9: data movement (architecture 8.9). Six bundles; each next BSTART could complete the one before it as well.

.gpr 0 a0 = 0x10000, a1 = 80                                # base, and a stride of 80 bytes for rows of 64
.memory 0x10000 FP16 1*32 0*8 2*32 0*8 3*32 0*8 4*32 0*8 5*32 0*8 6*32 0*8 7*32 0*8 8*32 0*8 \
                     9*32 0*8 10*32 0*8 11*32 0*8 12*32 0*8 13*32 0*8 14*32 0*8 15*32 0*8 16*32 0*8

// a: TLOAD into the layout of A.
BSTART.TLOAD FP16
B.DATR {ND2M16, DTYPE_NONE, Zero, EQ, Default, 0, 0}
B.DIM zero, 32, ->LB0                                       # columns
B.DIM zero, 16, ->LB1                                       # rows
B.IOR a0, a1
B.IOT mask=1000, <last>, ->T<4>
BSTOP
.expect tile 0 T#1 CUBE_M16 FP16 16 32 capacity=1024 == \
   1*32 2*32 3*32 4*32 5*32 6*32 7*32 8*32 9*32 10*32 11*32 12*32 13*32 14*32 15*32 16*32

// b: TSTORE from the layout of D.
.tile 0 U#1 CUBE_M16 FP32 16 8 capacity=512 = 1 2 3 4 5 6 7 8 ...
.gpr 0 a0 = 0x20000, a1 = 32
.memory 0x20000 zero 1024
BSTART.TSTORE FP32
B.DATR {M162ND, DTYPE_NONE, Null, EQ, Default, 0, 0}
B.DIM zero, 8, ->LB0
B.DIM zero, 16, ->LB1
B.IOR a0, a1
B.IOT U#1, mask=1000, <last>
BSTOP
.expect memory 0x20000 == FP32 1 2 3 4 5 6 7 8  1 2 3 4 5 6 7 8
.expect memory 0x201E0 == FP32 1 2 3 4 5 6 7 8 0            # the last row, and nothing behind it

// c: TCVT, FP32 to FP16.
.tile 0 T#1 RowMajor FP32 4 16 capacity=256 = 0x3F801000*16 2.0*48
BSTART.VEC TCVT, FP32
B.DATR {NORM, FP16, Null, EQ, RNE, 0, 0}
B.DIM zero, 16, ->LB0
B.DIM zero, 4, ->LB1
B.IOT T#1, mask=1000, <last>, ->U<1>
BSTOP
.expect tile 0 U#1 RowMajor FP16 4 16 == 1.0*16 2.0*48      # a tie, to even
.expect flags NX

// d: TQUANT, FP32 to S8, saturating.
.flags none
.gpr 0 a0 = fp32:10.0, a1 = 3                               # multiplier, zero point
.tile 0 T#1 RowMajor FP32 4 16 capacity=256 = 1.3*16 100*48
BSTART.SFU TQUANT, FP32
B.DATR S8, Sat=1
B.DIM zero, 16, ->LB0
B.DIM zero, 4, ->LB1
B.IOR a0, a1
B.IOT T#1, mask=1000, <last>, ->U<1>
BSTOP
.expect tile 0 U#1 RowMajor S8 4 16 == 16*16 127*48

// e: TDEQUANT, S8 to FP32. The source is what TQUANT published: U#1.
.gpr 0 a0 = fp32:0.1, a1 = 3
BSTART.SFU TDEQUANT, S8
B.DATR FP32
B.DIM zero, 16, ->LB0
B.DIM zero, 4, ->LB1
B.IOR a0, a1
B.IOT U#1, mask=1000, <last>, ->T<2>
BSTOP
.expect tile 0 T#1 RowMajor FP32 4 16 == 0x3FA66667*16 0x41466667*48

// f: TLOAD into a Shared Tile by one PE.
.gpr 0 a0 = 0x30000, a1 = 16
.memory 0x30000 E4M3 1*256 2*256
BSTART.TLOAD E4M3
B.DIM zero, 16, ->LB0
B.DIM zero, 32, ->LB1
B.DIM zero, 16, ->LB2
B.IOR a0, a1
B.IOS mask=1000, ->S6<3>
BSTOP
.expect shared S6 E4M3 32 16 capacity=512 == 1*256 2*256
