/*
 * test_torch_cpp.c - what is thrown, and which functions of which library do that: with stand-ins
 * for a process that has loaded PyTorch, libstdc++ alone, or neither (fake_cpp.h).
 * tests/shell/shell_dropin.sh throws through a C++ compiler's own.
 */
#include "allocator/dropin/torch.h"

#include <dlfcn.h>

#include "tests/allocator/dropin/fake_cpp.h"
#include "tests/check.h"

static fake_cpp *fake;
static bool has_cpp, has_torch;

/* In place of the C library's, which does the same. */
void *dlopen(const char *name, int mode) {
    const bool is_cpp = name != NULL && strcmp(name, "libstdc++.so.6") == 0;
    const bool is_torch = name != NULL && strcmp(name, "libc10_cuda.so") == 0;
    if (is_cpp || is_torch) {
        CHECK((mode & RTLD_NOLOAD) != 0);
        name = (is_cpp ? has_cpp : has_torch) ? getenv("ASHLAR_TEST_FAKE_CPP") : "no library";
    }
    return dlmopen(LM_ID_BASE, name, mode);
}

static void be_in_process(bool with_cpp, bool with_torch) {
    void *library = dlmopen(LM_ID_BASE, getenv("ASHLAR_TEST_FAKE_CPP"), RTLD_NOW);
    REQUIRE(library != NULL);
    fake = dlsym(library, "fake");
    REQUIRE(fake != NULL);
    *fake = (fake_cpp){0};
    has_cpp = with_cpp;
    has_torch = with_torch;
}

static void check_nothing_is_thrown_of_torchs(void) {
    CHECK_ZU(fake->made_count, 0);
    CHECK_ZU(fake->thrown_count, 0);
    CHECK_ZU(fake->string_count, 0);
}

CASE(an_error_is_a_runtime_error_with_the_text) {
    be_in_process(true, true);
    ashlar__throw("what went wrong");
    CHECK(strcmp(fake->runtime_error, "what went wrong") == 0);
    check_nothing_is_thrown_of_torchs();
}

CASE(out_of_memory_is_pytorch_s_error_with_its_type_and_destructor) {
    for (int moves = 0; moves < 2; moves++) {
        be_in_process(true, true);
        fake->moves = moves != 0;
        ashlar__throw_out_of_memory("no room");
        CHECK(fake->made_count == 1 && fake->thrown_count == 1 && fake->destroyed_count == 1);
        CHECK(fake->is_sound);
        CHECK(strcmp(fake->text, "no room") == 0);
        CHECK_HAS(fake->function, "throw_out_of_memory");
        CHECK_ZU(fake->string_count, 0);
        CHECK(fake->runtime_error[0] == '\0');
    }
}

CASE(without_pytorch_out_of_memory_is_a_runtime_error) {
    be_in_process(true, false);
    ashlar__throw_out_of_memory("no room");
    CHECK(strcmp(fake->runtime_error, "no room") == 0);
    check_nothing_is_thrown_of_torchs();
}

CASE(nothing_is_thrown_where_nobody_could_catch_it) {
    be_in_process(false, true);
    ashlar__throw("what went wrong");
    ashlar__throw_out_of_memory("no room");
    CHECK(fake->runtime_error[0] == '\0');
    check_nothing_is_thrown_of_torchs();
}

CASE(a_request_that_fails_throws_by_what_it_failed_for) {
    setenv("ASHLAR_DEVICE", "soft", 1);
    be_in_process(true, true);
    CHECK(ashlar_torch_alloc_or_throw((size_t)1 << 50, 0, NULL) == NULL);
    CHECK(fake->thrown_count == 1 && fake->is_sound);
    CHECK_HAS(fake->text, "CUDA out of memory. Tried to allocate 1073741824.00 MiB");
    CHECK(ashlar_torch_alloc_or_throw(1000, 99, NULL) == NULL);
    CHECK_ZU(fake->thrown_count, 1);
    CHECK_HAS(fake->runtime_error, "ashlar: 1000 bytes on GPU 99: ");
}

RUN_CASES()
