/*
 * torch_cpp.h - the C++ types in PyTorch's interface, as C structures: the layouts of the Itanium
 * C++ ABI and of libstdc++, which all builds of PyTorch for Linux use; and throwing C++ exceptions
 * (internal to the drop-in libraries). tests/dropin/catch.cpp compares the layouts with a C++
 * compiler's.
 *
 * No C++ library is linked: its functions are found in the one that the process has loaded.
 */
#ifndef ASHLAR_DROPIN_TORCH_CPP_H
#define ASHLAR_DROPIN_TORCH_CPP_H

#include <stdbool.h>
#include <stdint.h>

#include <ashlar/device.h>

/* std::pair<unsigned long long, unsigned long long>, passed by value as such a structure. */
typedef struct ashlar_torch_pool_id {
    uint64_t first, second;
} ashlar_torch_pool_id;

/* std::function<bool(cudaStream_t)>, passed by reference to a copy that ends with the call. */
typedef struct ashlar_torch_filter ashlar_torch_filter;
struct ashlar_torch_filter {
    void *functor[2];
    bool (*manage)(void *to, const void *from, int operation); /* NULL: an empty function */
    bool (*invoke)(const void *functor, ashlar_stream *stream);
};

/* *to gets a copy, which ashlar__torch_filter_end() ends. */
void ashlar__torch_filter_copy(ashlar_torch_filter *to, const ashlar_torch_filter *from);
void ashlar__torch_filter_end(ashlar_torch_filter *filter);
bool ashlar__torch_filter_accepts(const ashlar_torch_filter *filter, ashlar_stream stream);

/*
 * _throw: throw a std::runtime_error. _throw_out_of_memory: throw torch.OutOfMemoryError
 * (c10::OutOfMemoryError, or a std::runtime_error in a process without that). They return only
 * where the process has not loaded libstdc++, so nobody could catch the exception. Nothing is
 * cleaned up on the way out, so callers must hold nothing.
 *
 * text   copied
 */
void ashlar__throw(const char *text);
void ashlar__throw_out_of_memory(const char *text);

#endif /* ASHLAR_DROPIN_TORCH_CPP_H */
