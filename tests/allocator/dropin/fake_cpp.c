/* fake_cpp.c - notes what is thrown by the names of C++ (fake_cpp.h). */
#include "tests/allocator/dropin/fake_cpp.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* std::string and c10::SourceLocation */
typedef struct cpp_string {
    char *text;
    size_t length;
    union {
        char local[16];
        size_t capacity;
    } short_or;
} cpp_string;

typedef struct source_location {
    const char *function, *file;
    uint32_t line;
} source_location;

typedef void function(void *exception);

EXPORT void throw_runtime_error(const char *text) __asm__("_ZSt21__throw_runtime_errorPKc");
EXPORT void *new_bytes(size_t bytes) __asm__("_Znwm");
EXPORT void delete_bytes(void *bytes) __asm__("_ZdlPv");
EXPORT void *new_exception(size_t bytes) __asm__("__cxa_allocate_exception");
EXPORT void throw_exception(void *exception, void *type, function *destroy) __asm__("__cxa_throw");
EXPORT void make_base(void *error, source_location where, cpp_string *text) __asm__(
    "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE");
EXPORT extern const char derived_type[1] __asm__("_ZTIN3c1016OutOfMemoryErrorE");
EXPORT extern function *const derived_table[4] __asm__("_ZTVN3c1016OutOfMemoryErrorE");

EXPORT fake_cpp fake;

static void *error[FAKE_CPP_ERROR / sizeof(void *)];
static size_t error_bytes, string_bytes;

void throw_runtime_error(const char *text) {
    strncpy(fake.runtime_error, text, FAKE_CPP_TEXT - 1);
}

/* With one byte behind that is not the caller's. */
void *new_bytes(size_t bytes) {
    fake.string_count++;
    string_bytes = bytes;
    char *made = malloc(bytes + 1);
    made[bytes] = 'x';
    return made;
}

/* Apart: calls of delete_bytes() from here would find the operator delete of a sanitizer. */
static void take_back(void *bytes) {
    fake.string_count--;
    free(bytes);
}

void delete_bytes(void *bytes) {
    take_back(bytes);
}

void *new_exception(size_t bytes) {
    error_bytes = bytes;
    memset(error, 0xff, sizeof error);
    return error;
}

static bool is_cleared(void) {
    const unsigned char *bytes = (const unsigned char *)error;
    for (size_t i = 0; i < sizeof error; i++) {
        if (bytes[i] != (i < error_bytes ? 0 : 0xff)) {
            return false;
        }
    }
    return true;
}

static bool is_whole(const cpp_string *text) {
    return strlen(text->text) == text->length && text->short_or.capacity == text->length &&
           string_bytes == text->length + 1 && text->text[string_bytes] == 'x';
}

void make_base(void *made, source_location where, cpp_string *text) {
    fake.is_sound = made == (void *)error && is_cleared() && is_whole(text) && where.line > 0;
    fake.made_count++;
    strncpy(fake.text, text->text, FAKE_CPP_TEXT - 1);
    strncpy(fake.function, where.function, FAKE_CPP_TEXT - 1);
    if (fake.moves) {
        take_back(text->text);
        text->text = text->short_or.local;
    }
}

static void destroy_derived(void *exception) {
    fake.destroyed_count += exception == (void *)error;
}

static void destroy_and_delete(void *exception) {
    (void)exception;
    fake.is_sound = false;
}

const char derived_type[1];

/* Behind what is no function in a class's table, both of its destructors. */
function *const derived_table[4] = {NULL, NULL, destroy_derived, destroy_and_delete};

void throw_exception(void *exception, void *type, function *destroy) {
    fake.is_sound = fake.is_sound && exception == (void *)error &&
                    type == (const void *)derived_type && error[0] == (void *)(derived_table + 2);
    fake.thrown_count++;
    destroy(exception);
}
