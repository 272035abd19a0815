# as_string.sed - makes a program in Python a string in C, which is named after the program: the
# first line of NAME.py begins with """NAME.py. A literal may not be that long, so it is one by one.
1{
    h
    s/^"""\([a-z_]*\)\.py.*/extern const char ashlar__\1[];\nconst char ashlar__\1[] = {/p
    g
}
s/[\\']/\\&/g
s/\\\{0,1\}./'&',/g
s/$/'\\n',/
$a\
    0};
