// catch.cpp - the exception that comes out of a C library: catch LIBRARY
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <stdexcept>

namespace {

struct guard { // as a frame of the caller's, which has to be unwound
    int *ended;
    explicit guard(int *ended) : ended(ended) {
    }
    ~guard() {
        ++*ended;
    }
};

template <class F> F find(void *library, const char *name) {
    void *address = dlsym(library, name);
    F function = nullptr;
    std::memcpy(&function, &address, sizeof function);
    return function;
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
    auto refuse = find<void (*)()>(library, "ashlar_torch_refuse_graph");
    int caught = 0, ended = 0;
    for (int i = 0; i < 1000; i++) {
        guard one(&ended);
        const std::size_t bytes = i % 2 == 0 ? std::size_t(1) << 50 : 1000;
        try {
            guard two(&ended);
            void *block = take(bytes, i % 4 == 3 ? 99 : 0, nullptr);
            give(block, bytes, 0, nullptr);
        } catch (const std::runtime_error &error) {
            const char *want = i % 2 == 0
                                   ? "CUDA out of memory. Tried to allocate 1073741824.00 MiB"
                                   : "ashlar: 1000 bytes on GPU 99: device 99";
            if (std::strncmp(error.what(), want, std::strlen(want)) != 0) {
                std::puts(error.what());
                return 1;
            }
            caught++;
        }
    }
    try {
        guard one(&ended);
        refuse();
    } catch (const std::runtime_error &error) {
        caught += std::strstr(error.what(), "MemPool") != nullptr;
    }
    std::printf("%d caught, %d frames unwound\n", caught, ended);
    return !(caught == 751 && ended == 2001);
}
