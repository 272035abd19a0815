/*
 * step.hpp - a step (plan.h) as a scope of C++. Needs C++17, this header and libashlar.
 *
 *     {
 *         ashlar::step step(memory, stream, key);
 *         ...                                      allocate, queue work, free, by destructors, too
 *     }
 *
 * Objects declared in the scope after `step` are destroyed before the step ends.
 */
#ifndef ASHLAR_STEP_HPP
#define ASHLAR_STEP_HPP

#include <cstdint>
#include <stdexcept>

#include <ashlar/allocator.h>

namespace ashlar {

class [[nodiscard]] step {
  public:
    /* Throws std::runtime_error with ashlar_error_detail(), if the step cannot begin, or if
     * `allocator` is null, as ashlar_cuda_allocator() returns on failure. */
    step(ashlar_allocator *allocator, ashlar_stream stream, std::uint64_t key)
        : allocator_(allocator) {
        if (allocator == nullptr || ashlar_step_begin(allocator, stream, key) != ASHLAR_OK) {
            throw std::runtime_error(ashlar_error_detail());
        }
    }

    step(const step &) = delete;
    step &operator=(const step &) = delete;

    ~step() {
        (void)end(); /* if this fails, the key has no plan, but its steps still get memory */
    }

    /* End the step here. Returns what ashlar_step_end() does; ASHLAR_OK if it has ended before. */
    ashlar_status end() noexcept {
        ashlar_allocator *const ended = allocator_;
        allocator_ = nullptr;
        return ended != nullptr ? ashlar_step_end(ended) : ASHLAR_OK;
    }

  private:
    ashlar_allocator *allocator_; /* null: the step has ended */
};

} // namespace ashlar

#endif /* ASHLAR_STEP_HPP */
