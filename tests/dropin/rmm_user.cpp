// rmm_user.cpp - rmm_adaptor.hpp against the interfaces that it is for, and at work on an
// adversarial software device. What is not installed is declared here as far as it is asked for.
#include <ashlar/rmm_adaptor.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

int bad;

#define EXPECT(what)                                               \
    do {                                                           \
        if (!(what)) {                                             \
            std::printf("%s:%d: %s\n", __FILE__, __LINE__, #what); \
            bad++;                                                 \
        }                                                          \
    } while (0)

// What libcu++'s stream_ref can do: made from a handle, asked for it, no conversion back.
class stream_like {
  public:
    stream_like(CUstream_st *stream) : stream_(stream) {
    }
    CUstream_st *get() const noexcept {
        return stream_;
    }

  private:
    CUstream_st *stream_;
};

// cuda::mr::resource, as CCCL 3.1 and later ask it.
template <class R, class = void> struct is_resource : std::false_type {};
template <class R>
struct is_resource<
    R, std::void_t<
           std::enable_if_t<std::is_same_v<void *, decltype(std::declval<R &>().allocate_sync(
                                                       std::size_t(1), std::size_t(256)))>>,
           decltype(std::declval<R &>().deallocate_sync(nullptr, std::size_t(1), std::size_t(256))),
           std::enable_if_t<std::is_same_v<void *, decltype(std::declval<R &>().allocate(
                                                       std::declval<stream_like>(), std::size_t(1),
                                                       std::size_t(256)))>>,
           decltype(std::declval<R &>().deallocate(std::declval<stream_like>(), nullptr,
                                                   std::size_t(1), std::size_t(256))),
           decltype(std::declval<R const &>() == std::declval<R const &>()),
           decltype(std::declval<R const &>() != std::declval<R const &>())>> : std::true_type {};

using resource = ashlar::rmm_resource;
static_assert(is_resource<resource>::value, "cuda::mr::resource");
static_assert(!is_resource<int>::value, "and the question can be answered otherwise");
static_assert(std::is_copy_constructible_v<resource> && std::is_copy_assignable_v<resource> &&
                  std::is_nothrow_move_constructible_v<resource>,
              "any_resource keeps a copy");
static_assert(noexcept(std::declval<resource &>().deallocate(std::declval<stream_like>(), nullptr,
                                                             std::size_t(1))),
              "deallocate does not throw");

#if defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
static_assert(cuda::mr::async_resource_with<resource, cuda::mr::device_accessible>,
              "the real concept of the toolkit's CCCL");
#endif

struct fill {
    unsigned char *ptr;
    std::size_t bytes;
    unsigned char value;
};

void run_fill(void *args) {
    auto *f = static_cast<fill *>(args);
    std::memset(f->ptr, f->value, f->bytes);
}

constexpr std::size_t MIB = std::size_t(1) << 20;

std::uint64_t waits(ashlar_allocator *memory) {
    ashlar_stats stats;
    ashlar_allocator_get_stats(memory, &stats);
    return stats.served_waited + stats.served_completed;
}

// Two streams, and an adversary that runs what is queued as late as it can.
void stream_order(ashlar_device *device, resource memory) {
    ashlar_stream streams[2];
    EXPECT(ashlar_stream_create(device, &streams[0]) == ASHLAR_OK);
    EXPECT(ashlar_stream_create(device, &streams[1]) == ASHLAR_OK);
    auto *first = static_cast<unsigned char *>(memory.allocate(streams[0], 8 * MIB));
    const fill early = {first, 8 * MIB, 1};
    EXPECT(ashlar_launch(device, streams[0], run_fill, &early, sizeof early) == ASHLAR_OK);
    memory.deallocate(stream_like(streams[0]), first, 8 * MIB);
    auto *second = static_cast<unsigned char *>(memory.allocate(stream_like(streams[1]), 8 * MIB));
    EXPECT(second == first); // there is no more
    const fill late = {second, 8 * MIB, 2};
    EXPECT(ashlar_launch(device, streams[1], run_fill, &late, sizeof late) == ASHLAR_OK);
    EXPECT(ashlar_stream_synchronize(device, streams[1]) == ASHLAR_OK);
    EXPECT(ashlar_stream_synchronize(device, streams[0]) == ASHLAR_OK);
    EXPECT(second[0] == 2 && second[8 * MIB - 1] == 2);
    // Whoever is free to use it at once finds no work in it.
    const fill last = {second, 8 * MIB, 3};
    EXPECT(ashlar_launch(device, streams[1], run_fill, &last, sizeof last) == ASHLAR_OK);
    memory.deallocate(streams[1], second, 8 * MIB);
    auto *third = static_cast<unsigned char *>(memory.allocate_sync(8 * MIB));
    EXPECT(third == first && third[8 * MIB - 1] == 3);
    memory.deallocate_sync(third, 8 * MIB);
    // On one stream nobody waits for anybody.
    const std::uint64_t before = waits(memory.allocator());
    for (int i = 0; i < 3; i++) {
        void *block = memory.allocate(streams[0], 8 * MIB);
        memory.deallocate(streams[0], block, 8 * MIB);
    }
    EXPECT(waits(memory.allocator()) <= before + 1);
    ashlar_stream_destroy(device, streams[0]);
    ashlar_stream_destroy(device, streams[1]);
}

template <class Error, class Call> bool throws(Call call, const char *part) {
    try {
        call();
    } catch (const Error &error) {
        return std::strstr(error.what(), part) != nullptr;
    }
    return false;
}

void failures(resource memory) {
    ashlar_stream stream = nullptr;
    EXPECT(throws<ashlar::out_of_memory>([&] { (void)memory.allocate(stream, 16 * MIB); },
                                         "16777216"));
    EXPECT(throws<std::bad_alloc>([&] { (void)memory.allocate_sync(16 * MIB); }, "16777216"));
    EXPECT(throws<ashlar::bad_alloc>([&] { (void)memory.allocate(stream, 100, 1024); }, "1024"));
    EXPECT(throws<ashlar::bad_alloc>([&] { (void)memory.allocate(stream, 100, 24); }, "24"));
    EXPECT(throws<ashlar::bad_alloc>([&] { (void)memory.allocate(stream, 100, 0); }, "0"));
    EXPECT(memory.allocate(stream, 0) == nullptr);
    memory.deallocate(stream, nullptr, 0);
    memory.deallocate_sync(nullptr, 0);
}

// By every name there is.
void names(resource memory) {
    const stream_like stream(nullptr);
    void *blocks[5] = {memory.allocate(stream, 100, 512), memory.allocate(100, 512),
                       memory.allocate(std::size_t(100)), memory.allocate_async(100, stream),
                       memory.allocate_async(100, 512, stream)};
    for (void *block : blocks) {
        EXPECT(block != nullptr && reinterpret_cast<std::size_t>(block) % 512 == 0);
    }
    memory.deallocate(stream, blocks[0], 100, 512);
    memory.deallocate(blocks[1], 100, 512);
    memory.deallocate(blocks[2], 100);
    memory.deallocate_async(blocks[3], 100, stream);
    memory.deallocate_async(blocks[4], 100, 512, stream);
}

void count_report(const char *, void *count) {
    ++*static_cast<int *>(count);
}

// As a pool over the resource does it: taken on one stream, given back on another or on none, when
// the first may be no more.
void guards(ashlar_device *device) {
    ashlar_config config = {};
    ashlar_allocator *guarded;
    config.guard = ASHLAR_GUARD_FILL;
    EXPECT(ashlar_allocator_create_with(device, &config, &guarded) == ASHLAR_OK);
    int reports = 0;
    ashlar_allocator_set_report(guarded, count_report, &reports);
    resource memory(guarded);
    for (int round = 0; round < 4; round++) {
        ashlar_stream stream;
        EXPECT(ashlar_stream_create(device, &stream) == ASHLAR_OK);
        void *one = memory.allocate(stream, 1000), *two = memory.allocate(stream, 1000);
        void *three = memory.allocate(stream, 1000);
        memory.deallocate(stream_like(nullptr), one, 1000); // never used on `stream`
        EXPECT(ashlar_stream_synchronize(device, nullptr) == ASHLAR_OK);
        memory.deallocate_sync(two, 1000);
        ashlar_stream_destroy(device, stream);
        memory.deallocate_sync(three, 1000);
    }
    EXPECT(reports == 0);
    { // what was found is reported, and ends nothing
        auto *block = static_cast<unsigned char *>(memory.allocate_sync(1000));
        block[1000] = 1;
        void *next = memory.allocate_sync(1000);
        memory.deallocate_sync(block, 1000);
        EXPECT(ashlar_stream_synchronize(device, nullptr) == ASHLAR_OK);
        memory.deallocate_sync(next, 1000);
        EXPECT(reports == 1);
    }
    ashlar_allocator_destroy(guarded);
}

#if defined(ASHLAR_RMM_HAS_BASE)
void base(ashlar_allocator *memory, ashlar_allocator *other_memory) {
    ashlar::rmm_device_resource mine(memory), same(memory), other(other_memory);
    rmm::mr::device_memory_resource *mr = &mine;
    void *block = mr->allocate(1000, rmm::cuda_stream_view());
    ashlar_stats stats;
    ashlar_allocator_get_stats(memory, &stats);
    EXPECT(stats.live_bytes == 1000);
    mr->deallocate(block, 1000, rmm::cuda_stream_view());
    EXPECT(mr->is_equal(mine) && mr->is_equal(same) && !mr->is_equal(other));
    EXPECT(throws<rmm::out_of_memory>(
        [&] { (void)mr->allocate(16 * MIB, rmm::cuda_stream_view()); }, "rmm: "));
}
#endif

} // namespace

int main() {
    ashlar_device *device;
    ashlar_allocator *memory, *other;
    ashlar_stats stats;
    setenv("ASHLAR_SOFT", "memory=8MiB,mode=adversarial,strict=on", 1);
    if (ashlar_device_open("soft", &device) != ASHLAR_OK) {
        std::puts(ashlar_error_detail());
        return 1;
    }
    guards(device);
    if (ashlar_allocator_create(device, &memory) != ASHLAR_OK ||
        ashlar_allocator_create(device, &other) != ASHLAR_OK) {
        std::puts(ashlar_error_detail());
        return 1;
    }
    stream_order(device, resource(memory));
    failures(resource(memory));
    names(resource(memory));
    EXPECT(resource(memory) == resource(memory) && resource(memory) != resource(other));
    EXPECT(resource(memory).allocator() == memory);
#if defined(ASHLAR_RMM_HAS_BASE)
    base(memory, other);
#endif
    ashlar_allocator_get_stats(memory, &stats);
    EXPECT(stats.live_blocks == 0 && stats.alloc_count >= 8);
    ashlar_allocator_destroy(other);
    ashlar_allocator_destroy(memory);
    ashlar_device_close(device);
    return bad != 0;
}
