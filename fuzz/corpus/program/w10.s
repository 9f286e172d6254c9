// W10: no PE takes part, so nothing is bound, nothing is missing, and nothing changes (architecture 8.10).

BSTART.TMATMULMX.BIAS E4M3
B.IOS S63, mask=0000
B.IOT T#16, T#16, mask=0000, <last>
BSTOP
.expect unchanged
.expect tile all U#1 none

// One effective binding, and the missing B.FPATR counts.
BSTART.TMATMULMX.BIAS E4M3
B.IOT T#1, T#2, mask=1000
BSTOP
.expect fault BundleControl B2
.expect unchanged
