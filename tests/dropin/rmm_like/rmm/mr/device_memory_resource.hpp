// device_memory_resource.hpp - as much of RMM's header as rmm_adaptor.hpp uses, declared by us.
#pragma once
#include <cstddef>

struct CUstream_st;

namespace rmm {

class cuda_stream_view {
  public:
    constexpr cuda_stream_view() = default;
    constexpr cuda_stream_view(CUstream_st *stream) noexcept : stream_(stream) {
    }
    constexpr operator CUstream_st *() const noexcept {
        return stream_;
    }

  private:
    CUstream_st *stream_ = nullptr;
};

namespace mr {

class device_memory_resource {
  public:
    virtual ~device_memory_resource() = default;
    void *allocate(std::size_t bytes, cuda_stream_view stream) {
        return do_allocate(bytes, stream);
    }
    void deallocate(void *ptr, std::size_t bytes, cuda_stream_view stream) {
        do_deallocate(ptr, bytes, stream);
    }
    bool is_equal(device_memory_resource const &other) const noexcept {
        return do_is_equal(other);
    }

  private:
    virtual void *do_allocate(std::size_t bytes, cuda_stream_view stream) = 0;
    virtual void do_deallocate(void *ptr, std::size_t bytes, cuda_stream_view stream) noexcept = 0;
    virtual bool do_is_equal(device_memory_resource const &other) const noexcept {
        return this == &other;
    }
};

} // namespace mr
} // namespace rmm
