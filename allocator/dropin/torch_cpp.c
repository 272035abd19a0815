/* torch_cpp.c - copying and calling a std::function, and throwing C++ exceptions, from C, by their
 * binary layouts. */
#include "allocator/dropin/torch.h"

#include <dlfcn.h>
#include <string.h>

enum {
    OPERATION_CLONE = 2, /* std::_Manager_operation of libstdc++ */
    OPERATION_DESTROY = 3,
    ERROR_BYTES = 512 /* a c10::Error, with room for what later versions add to it */
};

/* ---- std::function ---- */

void ashlar__torch_filter_copy(ashlar_torch_filter *to, const ashlar_torch_filter *from) {
    *to = (ashlar_torch_filter){0};
    if (from->manage != NULL) {
        (void)from->manage(to, from, OPERATION_CLONE);
        to->manage = from->manage;
        to->invoke = from->invoke;
    }
}

void ashlar__torch_filter_end(ashlar_torch_filter *filter) {
    if (filter->manage != NULL) {
        (void)filter->manage(filter, filter, OPERATION_DESTROY);
    }
    *filter = (ashlar_torch_filter){0};
}

bool ashlar__torch_filter_accepts(const ashlar_torch_filter *filter, ashlar_stream stream) {
    return filter->manage != NULL && filter->invoke(filter, &stream);
}

/* ---- exceptions ---- */

#define CPP "libstdc++.so.6"
/* This library depends on libc10.so, which has the constructor and, in newer versions, the type;
 * dlsym() searches both. */
#define TORCH "libc10_cuda.so"
#define ARGUMENTS "ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"

typedef struct symbol {
    const char *library, *name;
} symbol;

/* Find addresses in libraries that the process has loaded already. Their handles are not closed, so
 * they stay loaded.
 *
 * to   [count] pointers to functions or data: ISO C has no cast from the one to the other */
static bool find_all(const symbol *symbols, size_t count, void *to) {
    for (size_t i = 0; i < count; i++) {
        void *library = dlopen(symbols[i].library, RTLD_LAZY | RTLD_NOLOAD);
        void *address = library != NULL ? dlsym(library, symbols[i].name) : NULL;
        if (address == NULL) {
            return false;
        }
        memcpy((char *)to + i * sizeof address, &address, sizeof address);
    }
    return true;
}

void ashlar__throw(const char *text) {
    /* libstdc++ has had this function since its first version: its containers throw with it. It
     * copies the text. */
    static const symbol needed = {CPP, "_ZSt21__throw_runtime_errorPKc"};
    void (*throw_runtime_error)(const char *text);
    _Static_assert(sizeof throw_runtime_error == sizeof(void *), "POSIX: dlsym finds functions");
    if (find_all(&needed, 1, &throw_runtime_error)) {
        throw_runtime_error(text);
    }
}

/* std::string, passed by value as a pointer to a copy. */
typedef struct cpp_string {
    char *text; /* `local`, or from operator new */
    size_t length;
    union {
        char local[16];
        size_t capacity; /* without the 0 at the end */
    } short_or;
} cpp_string;

/* c10::SourceLocation */
typedef struct source_location {
    const char *function, *file;
    uint32_t line;
} source_location;

/* What is needed to throw PyTorch's error. The exception is made as its base class, c10::Error, and
 * then gets the derived class's type: older versions export only the base's constructor. */
typedef struct thrower {
    void *(*new_bytes)(size_t bytes);
    void (*delete_bytes)(void *bytes);
    void *(*new_exception)(size_t bytes);
    void (*throw_exception)(void *exception, void *type, void (*destroy)(void *exception));
    void (*make_base)(void *error, source_location where, cpp_string *text);
    void **table; /* of virtual functions, behind two words that are none */
    void *type;
} thrower;

static const symbol thrower_symbols[] = {
    {CPP, "_Znwm"},
    {CPP, "_ZdlPv"},
    {CPP, "__cxa_allocate_exception"},
    {CPP, "__cxa_throw"},
    {TORCH, "_ZN3c105ErrorC1" ARGUMENTS},
    {TORCH, "_ZTVN3c1016OutOfMemoryErrorE"},
    {TORCH, "_ZTIN3c1016OutOfMemoryErrorE"},
};

enum { THROWER_SYMBOLS = sizeof thrower_symbols / sizeof *thrower_symbols };

_Static_assert(sizeof(thrower) == THROWER_SYMBOLS * sizeof(void *), "a symbol for each field");

/* Destroy a C++ object, whose first virtual function is its destructor. */
static void destroy(void *exception) {
    void (**table)(void *exception) = *(void (***)(void *))exception;
    table[0](exception);
}

void ashlar__throw_out_of_memory(const char *text) {
    thrower t;
    if (!find_all(thrower_symbols, THROWER_SYMBOLS, &t)) {
        ashlar__throw(text);
        return;
    }
    cpp_string string = {.length = strlen(text), .short_or.capacity = strlen(text)};
    string.text = t.new_bytes(string.length + 1);
    memcpy(string.text, text, string.length + 1);
    void *exception = t.new_exception(ERROR_BYTES);
    memset(exception, 0, ERROR_BYTES);
    t.make_base(exception, (source_location){__func__, "torch_cpp.c", __LINE__}, &string);
    if (string.text != string.short_or.local) { /* the constructor has not taken the text over */
        t.delete_bytes(string.text);
    }
    void **functions = t.table + 2;
    memcpy(exception, &functions, sizeof functions);
    t.throw_exception(exception, t.type, destroy);
}
