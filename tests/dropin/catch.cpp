// catch.cpp - what is C++ in PyTorch's interface, between C++ and a C library: exceptions that come
// out of it, and functions that go in. catch LIBRARY
//
// With -DC10, exceptions that run out of memory are PyTorch's, which c10.cpp stands in for.
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <stdexcept>
#include <utility>

#ifdef C10
#include "c10.hpp"
typedef c10::OutOfMemoryError out_of_memory;
#else
typedef std::runtime_error out_of_memory;
#endif

namespace {

struct guard { // as a frame of the caller's, which has to be unwound
    int *ended;
    explicit guard(int *ended) : ended(ended) {
    }
    ~guard() {
        ++*ended;
    }
};

// A filter of PyTorch's; too large for std::function to keep in itself.
struct filter {
    static int live;
    void *accepted[4];
    explicit filter(void *stream) : accepted{stream, stream, stream, stream} {
        live++;
    }
    filter(const filter &other) {
        std::memcpy(accepted, other.accepted, sizeof accepted);
        live++;
    }
    ~filter() {
        live--;
    }
    bool operator()(void *stream) const {
        return stream == accepted[3];
    }
};

int filter::live = 0;

typedef std::pair<unsigned long long, unsigned long long> pool_id;

template <class F> F find(void *library, const char *name) {
    void *address = dlsym(library, name);
    F function = nullptr;
    std::memcpy(&function, &address, sizeof function);
    return function;
}

// Blocks of a capture come from memory that an ordinary request does not get. Returns whether it is
// so, for both sorts of function, which std::function keeps in itself or not.
bool captures(void *library) {
    auto take = find<void *(*)(std::size_t, int, void *)>(library, "ashlar_torch_alloc");
    auto give = find<void (*)(void *, std::size_t, int, void *)>(library, "ashlar_torch_free");
    auto begin = find<void (*)(signed char, pool_id, std::function<bool(void *)>)>(
        library, "ashlar_torch_begin_graph");
    auto end = find<void (*)(signed char, pool_id)>(library, "ashlar_torch_end_graph");
    auto release = find<void (*)(signed char, pool_id)>(library, "ashlar_torch_release_graph");
    void *const stream = reinterpret_cast<void *>(2); // the thread's own default stream
    void *kept[2] = {nullptr, nullptr};
    for (unsigned long long i = 0; i < 2; i++) {
        const pool_id id(1, i);
        if (i == 0) {
            begin(0, id, filter(stream));
        } else {
            begin(0, id, [stream](void *asked) { return asked == stream; });
        }
        kept[i] = take(1 << 20, 0, stream);
        give(kept[i], 1 << 20, 0, stream);
        end(0, id);
        void *other = take(1 << 20, 0, stream); // a graph could still be launched
        if (filter::live != 0 || kept[i] == nullptr || other == kept[i] || kept[1] == kept[0]) {
            return false;
        }
        give(other, 1 << 20, 0, stream);
    }
    for (unsigned long long i = 0; i < 2; i++) {
        release(0, pool_id(1, i));
    }
    bool is_refused = false;
    try {
        begin(99, pool_id(1, 9), filter(stream));
    } catch (const std::runtime_error &error) {
        is_refused = std::strstr(error.what(), "device 99") != nullptr;
    }
    return is_refused && filter::live == 0;
}

} // namespace

int main(int argc, char **argv) {
    void *library = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW);
    if (library == nullptr) {
        std::puts(dlerror());
        return 2;
    }
    auto take = find<void *(*)(std::size_t, int, void *)>(library, "ashlar_torch_alloc_or_throw");
    auto give = find<void (*)(void *, std::size_t, int, void *)>(library, "ashlar_torch_free");
    int caught = 0, ended = 0;
    for (int i = 0; i < 1000; i++) {
        guard one(&ended);
        const std::size_t bytes = i % 2 == 0 ? std::size_t(1) << 50 : 1000;
        try {
            guard two(&ended);
            void *block = take(bytes, i % 4 == 3 ? 99 : 0, nullptr);
            give(block, bytes, 0, nullptr);
        } catch (const std::exception &error) {
            const char *want = i % 2 == 0
                                   ? "CUDA out of memory. Tried to allocate 1073741824.00 MiB"
                                   : "ashlar: 1000 bytes on GPU 99: device 99";
            const bool is_right_type =
                i % 2 == 0 ? dynamic_cast<const out_of_memory *>(&error) != nullptr
                           : dynamic_cast<const std::runtime_error *>(&error) != nullptr;
            if (!is_right_type || std::strncmp(error.what(), want, std::strlen(want)) != 0) {
                std::puts(error.what());
                return 1;
            }
            caught++;
        }
    }
#ifdef C10
    if (c10::errors_live != 0 || c10::errors_made != 500) {
        std::printf("%d errors of PyTorch's made, %d left\n", c10::errors_made, c10::errors_live);
        return 1;
    }
#endif
    if (!captures(library)) {
        std::puts("a capture does not have its own memory");
        return 1;
    }
    std::printf("%d caught, %d frames unwound\n", caught, ended);
    return !(caught == 750 && ended == 2000);
}
