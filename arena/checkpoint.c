#include "checkpoint.h"

#include <string.h>

#include "error.h"
#include "host.h"

_Static_assert((int)ASHLAR_RANK_MAX <= (int)ASHLAR_SAFETENSORS_RANK_MAX,
               "every tensor can be written");

/* The parameter region on the host, to be filled or written. */
static ashlar_status take_image(const ashlar_arena *arena, char **image) {
    if (ashlar_arena_regions(arena) == 0) {
        return ashlar_fail(ASHLAR_EINVAL, "checkpoint: the arena is not committed");
    }
    const size_t bytes = ashlar_arena_region_bytes(arena, ASHLAR_REGION_PARAMETERS);
    *image = ashlar_host_calloc(bytes, 1);
    return *image != NULL
               ? ASHLAR_OK
               : ashlar_fail(ASHLAR_EHOSTMEM, "checkpoint: no host memory for %zu bytes", bytes);
}

/* Describe every tensor, its data in `image`. */
static void describe(const ashlar_arena *arena, const char *image,
                     ashlar_safetensors_entry *entries) {
    for (size_t i = 0; i < ashlar_arena_tensor_count(arena); i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, i, &info);
        entries[i] = (ashlar_safetensors_entry){.name = info.name,
                                                .dtype = info.dtype,
                                                .rank = info.rank,
                                                .data = image + info.offset[ASHLAR_LAYOUT_STORAGE]};
        memcpy(entries[i].shape, info.shape, info.rank * sizeof info.shape[0]);
    }
}

static ashlar_status read_region(const ashlar_arena *arena, char *image, ashlar_stream stream) {
    ashlar_device *device = ashlar_allocator_device(ashlar_arena_allocator(arena));
    const ashlar_status status =
        ashlar_copy_to_host(device, image, ashlar_arena_region(arena, ASHLAR_REGION_PARAMETERS),
                            ashlar_arena_region_bytes(arena, ASHLAR_REGION_PARAMETERS), stream);
    return status == ASHLAR_OK ? ashlar_stream_synchronize(device, stream) : status;
}

ashlar_status ashlar_checkpoint_save(const ashlar_arena *arena, const char *path,
                                     const ashlar_safetensors_pair *metadata, size_t metadata_count,
                                     ashlar_stream stream) {
    char *image = NULL;
    ashlar_status status = take_image(arena, &image);
    if (status != ASHLAR_OK) {
        return status;
    }
    const size_t count = ashlar_arena_tensor_count(arena);
    ashlar_safetensors_entry *entries = ashlar_host_calloc(count, sizeof *entries);
    status = entries != NULL
                 ? read_region(arena, image, stream)
                 : ashlar_fail(ASHLAR_EHOSTMEM, "checkpoint: no host memory for %zu names", count);
    if (status == ASHLAR_OK) {
        describe(arena, image, entries);
        status = ashlar_safetensors_write(path, entries, count, metadata, metadata_count);
    }
    ashlar_host_free(entries);
    ashlar_host_free(image);
    return status;
}

static bool is_same_shape(const ashlar_tensor_info *info, const ashlar_safetensors_entry *entry) {
    return entry->dtype == info->dtype && entry->rank == info->rank &&
           memcmp(entry->shape, info->shape, info->rank * sizeof info->shape[0]) == 0;
}

/* Gather the file's tensors into an image of the region. */
static ashlar_status gather(const ashlar_arena *arena, const ashlar_safetensors *file,
                            char *image) {
    const size_t count = ashlar_arena_tensor_count(arena);
    for (size_t i = 0; i < count; i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, i, &info);
        const ashlar_safetensors_entry *entry = ashlar_safetensors_find(file, info.name);
        if (entry == NULL || !is_same_shape(&info, entry)) {
            return ashlar_fail(ASHLAR_EFORMAT, "checkpoint: tensor %s %s", info.name,
                               entry == NULL ? "is not in the file"
                                             : "has another type or shape in the file");
        }
        memcpy(image + info.offset[ASHLAR_LAYOUT_STORAGE], entry->data, info.bytes);
    }
    if (ashlar_safetensors_count(file) != count) {
        return ashlar_fail(ASHLAR_EFORMAT, "checkpoint: the file has %zu tensors, the model %zu",
                           ashlar_safetensors_count(file), count);
    }
    return ASHLAR_OK;
}

ashlar_status ashlar_checkpoint_load(ashlar_arena *arena, const ashlar_safetensors *file,
                                     ashlar_stream stream) {
    char *image = NULL;
    ashlar_status status = take_image(arena, &image);
    if (status == ASHLAR_OK) {
        status = gather(arena, file, image);
    }
    if (status == ASHLAR_OK) {
        ashlar_device *device = ashlar_allocator_device(ashlar_arena_allocator(arena));
        status = ashlar_copy_to_device(
            device, ashlar_arena_region(arena, ASHLAR_REGION_PARAMETERS), image,
            ashlar_arena_region_bytes(arena, ASHLAR_REGION_PARAMETERS), stream);
        if (status == ASHLAR_OK) {
            status = ashlar_stream_synchronize(device, stream);
        }
    }
    ashlar_host_free(image);
    return status;
}
