/*
 * rmm_adaptor.hpp - an ashlar allocator as a memory resource of RMM and of libcu++. C++17, nothing
 * to compile but this header; link with libashlar.
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
 * rmm_resource is a class without a base, as the concepts want it: cuda::mr::resource of CCCL from
 * 3.1 on (allocate on a stream, allocate_sync) and cuda::mr::async_resource before (allocate,
 * allocate_async). RMM takes such a class from 24.10 on, through its device_async_resource_ref.
 *
 * rmm_device_resource is for what wants a rmm::mr::device_memory_resource *, in versions of RMM
 * that have it, 24.04 to 26.04: rmm::mr::set_current_device_resource(&resource).
 *
 * Tried with RMM 24.12, 25.02, .04, .08, .10, .12, 26.02, .04, .06, .08 and 26.10, which itself
 * wants C++20.
 *
 * Both refer to the allocator, which has to live longer, as long as what RMM frees at its end.
 * Copies are equal. All blocks are multiples of 512 bytes, at multiples of 512.
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

/* Before CCCL 3.1 the properties are there only where they are asked for, which RMM does. */
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
/* what() says what was asked, what there is and what would help. */
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

/* cudaStream_t itself, and what turns into it: rmm::cuda_stream_view. */
template <class Stream, std::enable_if_t<std::is_convertible_v<Stream, ashlar_stream>, int> = 0>
ashlar_stream stream_of(const Stream &stream, int) noexcept {
    return stream;
}

/* cuda::stream_ref, which has to be asked. */
template <class Stream>
auto stream_of(const Stream &stream, long) noexcept
    -> std::enable_if_t<std::is_convertible_v<decltype(stream.get()), ashlar_stream>,
                        ashlar_stream> {
    return stream.get();
}

/* For overloads: `Stream` is one of these. */
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

    /* `stream`: of the last use, or one that is ordered behind it. */
    template <class Stream, class = detail::if_stream<Stream>>
    void deallocate(const Stream &stream, void *ptr, std::size_t, // nothing is asked of the size
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

    /* All work that uses the memory is over. */
    void deallocate_sync(void *ptr, std::size_t, std::size_t = default_alignment) noexcept {
        const ashlar_status status = ashlar_free(allocator_, ptr);
        assert(status == ASHLAR_OK && "not a block of this allocator");
        (void)status;
    }

    /* The same under the names that CCCL had for them before 3.1. */
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
        if (status == ASHLAR_EHOSTMEM) {
            /* There is no room to remember the stream: with its work over, nobody has to. */
            status = ashlar_stream_synchronize(ashlar_allocator_device(allocator_), stream);
            status = status == ASHLAR_OK ? ashlar_free(allocator_, ptr) : status;
        }
        assert(status == ASHLAR_OK && "not a block of this allocator");
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
