/*
 * step.hpp - a step (plan.h) as a scope of C++. Needs C++17, this header and libashlar.
 *
 *     {
 *         ashlar::step step(memory, stream, key);
 *         ...                                      allocate, queue work, free, by destructors, too
 *     }
 *
 * What is declared behind it in the scope is destroyed before the step ends.
 */
#ifndef ASHLAR_STEP_HPP
#define ASHLAR_STEP_HPP

#include <cstdint>
#include <stdexcept>

#include <ashlar/allocator.h>

namespace ashlar {

class [[nodiscard]] step {
  public:
    /* Throws std::runtime_error with ashlar_error_detail(), if the step cannot begin. A null
     * `allocator` is one that ashlar_cuda_allocator() did not find. */
    step(ashlar_allocator *allocator, ashlar_stream stream, std::uint64_t key)
        : allocator_(allocator) {
        if (allocator == nullptr || ashlar_step_begin(allocator, stream, key) != ASHLAR_OK) {
            throw std::runtime_error(ashlar_error_detail());
        }
    }

    step(const step &) = delete;
    step &operator=(const step &) = delete;

    ~step() {
        (void)end(); /* without a plan, the ordinary path serves the key's steps */
    }

    /* End the step here. Returns what ashlar_step_end() does; ASHLAR_OK if it has ended before. */
    ashlar_status end() noexcept {
        ashlar_allocator *const ended = allocator_;
        allocator_ = nullptr;
        return ended != nullptr ? ashlar_step_end(ended) : ASHLAR_OK;
    }

  private:
    ashlar_allocator *allocator_; /* null: it has ended */
};

} // namespace ashlar

#endif /* ASHLAR_STEP_HPP */
