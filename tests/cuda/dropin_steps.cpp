// dropin_steps.cpp - a C++ file with ashlar/cuda_dropin.h whose memory is freed by destructors, in
// steps that are scopes.
#include <cstring>
#include <type_traits>
#include <vector>

#include <cuda_runtime.h>

#include <ashlar/cuda_dropin.h>
#include <ashlar/step.hpp>

extern "C" int guarded_steps(void);
extern "C" int guarded_errors(void);

namespace {

enum { LENGTHS = 128, STEPS = 400 };

class buffer {
  public:
    explicit buffer(size_t bytes) {
        if (cudaMalloc(&ptr_, bytes) != cudaSuccess) {
            throw std::runtime_error("cudaMalloc");
        }
    }
    buffer(buffer &&other) noexcept : ptr_(other.ptr_) {
        other.ptr_ = nullptr;
    }
    ~buffer() {
        (void)cudaFree(ptr_);
    }

  private:
    char *ptr_ = nullptr;
};

void run(ashlar_allocator *memory, size_t length) {
    ashlar::step step(memory, nullptr, 7);
    std::vector<buffer> kept;
    for (size_t i = 0; i < length; i++) {
        kept.emplace_back((1 + i % 7) * 4096);
        const buffer gradient(length * 512);
    }
    if (length % 5 == 0) {
        throw length;
    }
}

uint64_t miss_count(ashlar_allocator *memory) {
    ashlar_plan_stats plans;
    ashlar_plan_get_stats(memory, &plans);
    return plans.miss_count;
}

} // namespace

int guarded_steps(void) {
    ashlar_allocator *memory = ashlar_cuda_allocator(0);
    ashlar_plan_stats before, after;
    ashlar_stats stats;
    ashlar_plan_get_stats(memory, &before);
    for (size_t step = 0; step < STEPS; step++) {
        try {
            run(memory, step == 0 ? size_t{LENGTHS} : 1 + step * 37 % LENGTHS);
        } catch (size_t) { // the step has ended all the same
        }
        if (step == 0) {
            ashlar_allocator_seal(memory);
        }
    }
    ashlar_allocator_get_stats(memory, &stats);
    ashlar_plan_get_stats(memory, &after);
    return stats.driver_calls_sealed == 0 && stats.live_blocks == 0 && stats.shared_bytes == 0 &&
           after.steps_replayed - before.steps_replayed == STEPS - 1 && miss_count(memory) == 0;
}

int guarded_errors(void) {
    static_assert(!std::is_copy_constructible<ashlar::step>::value, "a step ends once");
    static_assert(!std::is_copy_assignable<ashlar::step>::value, "a step ends once");
    ashlar_allocator *memory = ashlar_cuda_allocator(-1);
    try {
        ashlar::step none(memory, nullptr, 0);
        return false;
    } catch (const std::runtime_error &error) {
        if (std::strstr(error.what(), "ordinals") == nullptr) {
            return false;
        }
    }
    memory = ashlar_cuda_allocator(0);
    ashlar::step once(memory, nullptr, 8);
    return once.end() == ASHLAR_OK && once.end() == ASHLAR_OK &&
           ashlar_step_end(memory) == ASHLAR_EINVAL;
}
