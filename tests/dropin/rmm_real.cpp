// rmm_real.cpp - rmm_adaptor.hpp under RMM itself, of any version: its buffers and adaptors take
// their memory from ashlar.
#include <ashlar/rmm_adaptor.hpp>

#include <cstdint>
#include <cstdio>

#include <cuda/stream_ref>
#include <rmm/device_buffer.hpp>
#include <rmm/resource_ref.hpp>
#include <rmm/version_config.hpp>
#if __has_include(<rmm/mr/statistics_resource_adaptor.hpp>)
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#else
#include <rmm/mr/device/per_device_resource.hpp>
#include <rmm/mr/device/statistics_resource_adaptor.hpp>
#endif

static_assert(std::is_constructible_v<rmm::device_async_resource_ref, ashlar::rmm_resource &>,
              "what RMM takes for a resource");

namespace {

constexpr std::size_t MIB = std::size_t(1) << 20;

int bad;

#define EXPECT(what)                                               \
    do {                                                           \
        if (!(what)) {                                             \
            std::printf("%s:%d: %s\n", __FILE__, __LINE__, #what); \
            bad++;                                                 \
        }                                                          \
    } while (0)

const cuda::stream_ref stream(static_cast<cudaStream_t>(nullptr));

std::uint64_t live_bytes(ashlar_allocator *memory) {
    ashlar_stats stats;
    ashlar_allocator_get_stats(memory, &stats);
    return stats.live_bytes;
}

void set_current(ashlar::rmm_resource &resource) {
#if RMM_VERSION_MAJOR * 100 + RMM_VERSION_MINOR >= 2606
    rmm::mr::set_current_device_resource(resource);
#else
    rmm::mr::set_current_device_resource_ref(resource);
#endif
}

void buffers_named_one_by_one(ashlar::rmm_resource &resource) {
    ashlar_allocator *memory = resource.allocator();
    {
        const rmm::device_buffer first(MIB, stream, resource);
        const rmm::device_buffer second(1000, stream, resource);
        EXPECT(first.data() != nullptr && second.data() != first.data());
        EXPECT(live_bytes(memory) == MIB + 1000);
    }
    EXPECT(live_bytes(memory) == 0);
}

void buffers_of_the_current_resource(ashlar::rmm_resource &resource) {
    ashlar_allocator *memory = resource.allocator();
    set_current(resource);
    {
        rmm::device_buffer buffer(MIB, stream);
        EXPECT(live_bytes(memory) == MIB);
        const rmm::device_buffer moved(std::move(buffer));
        EXPECT(live_bytes(memory) == MIB);
        bool is_thrown = false;
        try {
            const rmm::device_buffer big(std::size_t(1) << 50, stream);
        } catch (const rmm::out_of_memory &error) {
            is_thrown = std::string(error.what()).find("1125899906842624") != std::string::npos;
        }
        EXPECT(is_thrown);
    }
    EXPECT(live_bytes(memory) == 0);
}

void an_adaptor_over_it(ashlar::rmm_resource &resource) {
    ashlar_allocator *memory = resource.allocator();
#if defined(ASHLAR_RMM_HAS_BASE)
    ashlar::rmm_device_resource with_base(memory);
    rmm::mr::statistics_resource_adaptor<rmm::mr::device_memory_resource> counted(&with_base);
    const rmm::device_buffer buffer(MIB, stream, &counted);
#else
    rmm::mr::statistics_resource_adaptor counted(resource);
    const rmm::device_buffer buffer(MIB, stream, counted);
#endif
    EXPECT(live_bytes(memory) == MIB);
    EXPECT(counted.get_bytes_counter().value == MIB);
}

} // namespace

int main(int argc, char **argv) {
    ashlar_device *device;
    ashlar_allocator *memory;
    if (ashlar_device_open(argc > 1 ? argv[1] : "soft", &device) != ASHLAR_OK ||
        ashlar_allocator_create(device, &memory) != ASHLAR_OK) {
        std::puts(ashlar_error_detail());
        return 1;
    }
    static ashlar::rmm_resource resource(memory);
    buffers_named_one_by_one(resource);
    buffers_of_the_current_resource(resource);
    an_adaptor_over_it(resource);
    EXPECT(live_bytes(memory) == 0);
    return bad != 0;
}
