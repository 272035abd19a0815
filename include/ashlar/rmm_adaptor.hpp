/*
 * rmm_adaptor.hpp - an ashlar allocator as a memory resource of RMM and of libcu++. Needs C++17,
 * this header and libashlar, nothing else.
 *
 *     ashlar_device *device;
 *     ashlar_allocator *memory;
 *     if (ashlar_device_open("cuda:0", &device) != ASHLAR_OK ||
 *         ashlar_allocator_create(device, &memory) != ASHLAR_OK) {
 *         throw std::runtime_error(ashlar_error_detail());
 *     }
 *     static ashlar::rmm_resource resource(memory);
 *     rmm::mr::set_current_device_resource(resource); // before 26.06: ..._resource_ref(resource)
 *     rmm::device_buffer buffer(1 << 20, stream);     // of ashlar's memory
 *
 * rmm_resource has no base class. It satisfies CCCL's concepts: cuda::mr::resource from CCCL 3.1 on
 * (allocate on a stream, allocate_sync), and cuda::mr::async_resource before (allocate,
 * allocate_async). RMM accepts it from 24.10 on, through its device_async_resource_ref.
 *
 * rmm_device_resource is for code that needs a rmm::mr::device_memory_resource *, which RMM has
 * from 24.04 to 26.04: rmm::mr::set_current_device_resource(&resource).
 *
 * Tried with RMM 24.12, 25.02, .04, .08, .10, .12, 26.02, .04, .06, .08 and 26.10, which itself
 * needs C++20.
 *
 * RMM does not say when a stream ends. So both classes have the allocator watch its streams
 * (ashlar_allocator_watch_streams()): as RMM asks, a stream must be alive in calls that name it.
 *
 * Both classes hold a pointer to the allocator, which must outlive them and everything that RMM
 * frees when the program ends. Copies of a resource compare equal. The size and address of every
 * block are multiples of 512 bytes.
 */
#ifndef ASHLAR_RMM_ADAPTOR_HPP
#define ASHLAR_RMM_ADAPTOR_HPP

#include <cassert>
#include <cstddef>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include <ashlar/allocator.h>

#if __has_include(<rmm/error.hpp>)
#include <rmm/error.hpp>
#define ASHLAR_RMM_HAS_ERRORS 1
#elif __has_include(<rmm/detail/error.hpp>)
#include <rmm/detail/error.hpp>
#define ASHLAR_RMM_HAS_ERRORS 1
#endif

#if __has_include(<rmm/mr/device_memory_resource.hpp>)
#include <rmm/mr/device_memory_resource.hpp>
#define ASHLAR_RMM_HAS_BASE 1
#elif __has_include(<rmm/mr/device/device_memory_resource.hpp>)
#include <rmm/mr/device/device_memory_resource.hpp>
#define ASHLAR_RMM_HAS_BASE 1
#endif

/* Before CCCL 3.1, properties exist only if a macro asks for them, which RMM defines. */
#if __has_include(<cuda/memory_resource>)
#include <cuda/memory_resource>
#if defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
#define ASHLAR_RMM_HAS_PROPERTIES 1
#elif defined(CCCL_VERSION)
#if CCCL_VERSION >= 3001000
#define ASHLAR_RMM_HAS_PROPERTIES 1
#endif
#endif
#endif

namespace ashlar {

#if defined(ASHLAR_RMM_HAS_ERRORS)
using bad_alloc = rmm::bad_alloc;
using out_of_memory = rmm::out_of_memory;
#else
/* what() returns the text of ashlar_error_detail(). */
class bad_alloc : public std::bad_alloc {
  public:
    explicit bad_alloc(std::string text) : text_(std::move(text)) {
    }
    const char *what() const noexcept override {
        return text_.c_str();
    }

  private:
    std::string text_;
};

class out_of_memory : public bad_alloc {
  public:
    using bad_alloc::bad_alloc;
};
#endif

namespace detail {

/* For cudaStream_t, and for types that convert to it, such as rmm::cuda_stream_view. */
template <class Stream, std::enable_if_t<std::is_convertible_v<Stream, ashlar_stream>, int> = 0>
ashlar_stream stream_of(const Stream &stream, int) noexcept {
    return stream;
}

/* For cuda::stream_ref, whose get() returns the stream. */
template <class Stream>
auto stream_of(const Stream &stream, long) noexcept
    -> std::enable_if_t<std::is_convertible_v<decltype(stream.get()), ashlar_stream>,
                        ashlar_stream> {
    return stream.get();
}

/* Enables an overload only if `Stream` is one of the types above. */
template <class Stream>
using if_stream = decltype(detail::stream_of(std::declval<const Stream &>(), 0));

[[noreturn]] inline void fail(ashlar_status status) {
    if (status == ASHLAR_ENOMEM) {
        throw out_of_memory(std::string(ashlar_error_detail()));
    }
    throw bad_alloc(std::string(ashlar_error_detail()));
}

} // namespace detail

class rmm_resource {
  public:
    static constexpr std::size_t default_alignment = 256; /* RMM's, and cudaMalloc's */
    static constexpr std::size_t max_alignment = 512;

    explicit rmm_resource(ashlar_allocator *allocator) noexcept : allocator_(allocator) {
        ashlar_allocator_watch_streams(allocator);
    }

    ashlar_allocator *allocator() const noexcept {
        return allocator_;
    }

    /*
     * Memory for work that is queued on `stream` from now on; nullptr for 0 bytes. Throws
     * out_of_memory, or bad_alloc for any other reason.
     */
    template <class Stream, class = detail::if_stream<Stream>>
    void *allocate(const Stream &stream, std::size_t bytes,
                   std::size_t alignment = default_alignment) {
        return take(detail::stream_of(stream, 0), bytes, alignment);
    }

    /* `stream` is the stream of the last use, or one whose work is ordered after that use. */
    template <class Stream, class = detail::if_stream<Stream>>
    void deallocate(const Stream &stream, void *ptr, std::size_t, // the size is ignored
                    std::size_t = default_alignment) noexcept {
        give(ptr, detail::stream_of(stream, 0));
    }

    /* Memory that any stream may use at once. Waits for the default stream. */
    void *allocate_sync(std::size_t bytes, std::size_t alignment = default_alignment) {
        void *ptr = take(nullptr, bytes, alignment);
        if (ptr != nullptr) {
            const ashlar_status status =
                ashlar_stream_synchronize(ashlar_allocator_device(allocator_), nullptr);
            if (status != ASHLAR_OK) {
                give(ptr, nullptr);
                detail::fail(status);
            }
        }
        return ptr;
    }

    /*
     * All work that uses the memory must be over, so any stream may be named as the last user: here
     * the default one, which always exists. The one that took the memory may have been destroyed.
     */
    void deallocate_sync(void *ptr, std::size_t, std::size_t = default_alignment) noexcept {
        give(ptr, nullptr);
    }

    /* The same functions under the names that CCCL used before 3.1. */
    void *allocate(std::size_t bytes, std::size_t alignment = default_alignment) {
        return allocate_sync(bytes, alignment);
    }
    void deallocate(void *ptr, std::size_t bytes,
                    std::size_t alignment = default_alignment) noexcept {
        deallocate_sync(ptr, bytes, alignment);
    }
    template <class Stream, class = detail::if_stream<Stream>>
    void *allocate_async(std::size_t bytes, std::size_t alignment, const Stream &stream) {
        return allocate(stream, bytes, alignment);
    }
    template <class Stream, class = detail::if_stream<Stream>>
    void *allocate_async(std::size_t bytes, const Stream &stream) {
        return allocate(stream, bytes);
    }
    template <class Stream, class = detail::if_stream<Stream>>
    void deallocate_async(void *ptr, std::size_t bytes, std::size_t alignment,
                          const Stream &stream) noexcept {
        deallocate(stream, ptr, bytes, alignment);
    }
    template <class Stream, class = detail::if_stream<Stream>>
    void deallocate_async(void *ptr, std::size_t bytes, const Stream &stream) noexcept {
        deallocate(stream, ptr, bytes);
    }

    friend bool operator==(const rmm_resource &a, const rmm_resource &b) noexcept {
        return a.allocator_ == b.allocator_;
    }
    friend bool operator!=(const rmm_resource &a, const rmm_resource &b) noexcept {
        return !(a == b);
    }

#if defined(ASHLAR_RMM_HAS_PROPERTIES)
    friend void get_property(const rmm_resource &, cuda::mr::device_accessible) noexcept {
    }
#endif

  private:
    void *take(ashlar_stream stream, std::size_t bytes, std::size_t alignment) {
        void *ptr = nullptr;
        if (alignment == 0 || alignment > max_alignment || (alignment & (alignment - 1)) != 0) {
            throw bad_alloc("alignment: " + std::to_string(alignment) +
                            " is no power of two up to 512");
        }
        const ashlar_status status =
            bytes > 0 ? ashlar_alloc(allocator_, bytes, stream, &ptr) : ASHLAR_OK;
        if (status != ASHLAR_OK) {
            detail::fail(status);
        }
        return ptr;
    }

    void give(void *ptr, ashlar_stream stream) noexcept {
        ashlar_status status = ashlar_free_on(allocator_, ptr, stream);
        if (status == ASHLAR_EHOSTMEM || status == ASHLAR_EDRIVER) {
            /* The allocator cannot note the stream; once its work is over, it need not. */
            status = ashlar_stream_synchronize(ashlar_allocator_device(allocator_), stream);
            status = status == ASHLAR_OK ? ashlar_free(allocator_, ptr) : status;
        }
        /* EDAMAGE: the block is freed; a guard mode found damage, which the function that was given
         * to ashlar_allocator_set_report() has been told. */
        assert((status == ASHLAR_OK || status == ASHLAR_EDAMAGE) &&
               "not a block of this allocator, or its stream is gone");
        (void)status;
    }

    ashlar_allocator *allocator_;
};

#if defined(ASHLAR_RMM_HAS_BASE)

class rmm_device_resource final : public rmm::mr::device_memory_resource {
  public:
    explicit rmm_device_resource(ashlar_allocator *allocator) noexcept : resource_(allocator) {
    }

  private:
    void *do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override {
        return resource_.allocate(stream, bytes);
    }
    void do_deallocate(void *ptr, std::size_t bytes,
                       rmm::cuda_stream_view stream) noexcept override {
        resource_.deallocate(stream, ptr, bytes);
    }
    bool do_is_equal(const rmm::mr::device_memory_resource &other) const noexcept override {
        const auto *same = dynamic_cast<const rmm_device_resource *>(&other);
        return same != nullptr && same->resource_ == resource_;
    }

    rmm_resource resource_;
};

#endif

} // namespace ashlar

#endif /* ASHLAR_RMM_ADAPTOR_HPP */
