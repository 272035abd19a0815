# as_string.sed - makes the program torch_ddp.py a string in C.
s/[\\"]/\\&/g
s/.*/    "&\\n"/
1i\
#include "bench/ranks/rank_jobs.h"\
\
const char ashlar__torch_ddp[] =
$a\
    ;
