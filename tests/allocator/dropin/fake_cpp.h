/*
 * fake_cpp.h - functions by the names of libstdc++'s and of PyTorch's libc10_cuda.so, which note
 * what is thrown with them and return, so that a test in C can look at it.
 */
#ifndef ASHLAR_TESTS_FAKE_CPP_H
#define ASHLAR_TESTS_FAKE_CPP_H

#include <stdbool.h>
#include <stddef.h>

enum { FAKE_CPP_TEXT = 200, FAKE_CPP_ERROR = 4096 };

typedef struct fake_cpp {
    bool moves; /* whether c10::Error takes the string that it is given, or copies it */
    /* ---- noted ---- */
    char runtime_error[FAKE_CPP_TEXT];
    char text[FAKE_CPP_TEXT], function[FAKE_CPP_TEXT]; /* what c10::Error was made of */
    size_t made_count, thrown_count, destroyed_count;  /* of PyTorch's errors */
    size_t string_count;                               /* from operator new, and not given back */
    bool is_sound; /* made in cleared bytes, of a whole string, and thrown as OutOfMemoryError */
} fake_cpp;

#endif /* ASHLAR_TESTS_FAKE_CPP_H */
