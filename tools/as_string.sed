# as_string.sed - makes a file in ASCII a string in C, which is named after the file: ashlar__NAME.
# Its first line begins with """NAME.py or <!doctype html><!-- NAME.html. A literal may not be that
# long, so it is one by one.
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
