# as_string.sed - turns an ASCII file into C source for a string that holds the file's text, named
# ashlar__NAME. The file must begin with """NAME.py or <!doctype html><!-- NAME.html. Each character
# is written by itself, since compilers need not accept a string literal that long.
1{
    h
    s/^\("""\|<!doctype html><!-- \)\([a-z_]*\)\.\(py\|html\).*/extern const char ashlar__\2[];\nconst char ashlar__\2[] = {/p
    g
}
s/[\\']/\\&/g
s/\\\{0,1\}./'&',/g
s/$/'\\n',/
$a\
    0};
