/*
 * fuzz_safetensors.c - any bytes as a safetensors file: what is accepted keeps every promise of
 * safetensors.h and agrees with its own header.
 */
#include "tests/fuzz/fuzz.h"

#include "tests/json_tree.h"
#include "tests/arena/checkpoint/safetensors_find.h"

const char fuzz_claim[] = "every_file_is_refused_or_agrees_with_its_header";

enum { LENGTH_BYTES = 8, TEMPLATE_COUNT = 10 };

typedef struct sample {
    const char *header;
    size_t data_bytes;
} sample;

static const sample samples[TEMPLATE_COUNT] = {
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}  ", 24},
    {"{\"__metadata__\":{\"step\":\"12\",\"note\":\"\\u00e4\"},"
     "\"w\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[16,20]},"
     "\"none\":{\"dtype\":\"F32\",\"shape\":[4,0,2],\"data_offsets\":[20,20]}}",
     20},
    {"{}", 0},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]},"
     "\"c\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]},"
     "\"d\":{\"dtype\":\"F64\",\"shape\":[1,1,1,1,1,1,1,1],\"data_offsets\":[8,16]}}",
     16},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
     8},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
     12},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", 0},
    {"{\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4},
    {"{\"__metadata__\":{\"__metadata__\":\"\",\"a\":\"b\"}}", 0},
    {"{\"__metadata__\":null,\"a\":{\"dtype\":\"F4\",\"shape\":[1,1,1,1,1,1,1,1,1,2],"
     "\"data_offsets\":[0,1]},\"b\":{\"dtype\":\"NEW\",\"shape\":[],\"data_offsets\":[1,4]}}",
     4},
};

size_t fuzz_seed(unsigned i, uint8_t *out, size_t cap) {
    if (i >= TEMPLATE_COUNT) {
        return 0;
    }
    const size_t length = strlen(samples[i].header);
    const size_t bytes = LENGTH_BYTES + length + samples[i].data_bytes;
    FUZZ_CHECK(bytes <= cap);
    for (size_t k = 0; k < LENGTH_BYTES; k++) {
        out[k] = (uint8_t)(length >> (8 * k));
    }
    memcpy(out + LENGTH_BYTES, samples[i].header, length);
    for (size_t k = 0; k < samples[i].data_bytes; k++) {
        out[LENGTH_BYTES + length + k] = (uint8_t)(k + 1);
    }
    return bytes;
}

/* Shape times type, where an arena could have the type; it fits, since the file that holds the
 * elements is small. */
static size_t bytes_of(const ashlar_checkpoint_tensor *entry) {
    for (int dtype = 0; dtype < ASHLAR_DTYPE_COUNT; dtype++) {
        size_t bytes = ashlar_dtype_bytes((ashlar_dtype)dtype);
        if (strcmp(entry->dtype, ashlar_dtype_name((ashlar_dtype)dtype)) == 0) {
            for (size_t i = 0; i < entry->rank; i++) {
                FUZZ_CHECK(!__builtin_mul_overflow(bytes, entry->shape[i], &bytes));
            }
            return bytes;
        }
    }
    return entry->bytes;
}

/* A number of the header, where it must be one. */
static uint64_t number_of(const ashlar_json *value) {
    uint64_t number = 0;
    FUZZ_CHECK(ashlar__json_get_uint64(value, &number));
    return number;
}

/* One member of the header against the tensor of that name, whose data is at `data` + begin. */
static void check_member(const ashlar_checkpoint *file, const ashlar_json *member,
                         const ashlar_checkpoint_tensor *entry, const uint8_t *data) {
    const ashlar_json *shape = json_member(member, "shape");
    const ashlar_json *offsets = json_member(member, "data_offsets");
    const ashlar_json *dtype = json_member(member, "dtype");
    FUZZ_CHECK(entry != NULL && strcmp(entry->name, member->key) == 0);
    FUZZ_CHECK(shape != NULL && shape->count == entry->rank && offsets != NULL);
    FUZZ_CHECK(dtype != NULL && strcmp(dtype->text, entry->dtype) == 0);
    size_t i = 0;
    for (const ashlar_json *size = shape->item; size != NULL; size = size->next) {
        FUZZ_CHECK(number_of(size) == entry->shape[i++]);
    }
    FUZZ_CHECK(offsets->count == 2);
    const uint64_t begin = number_of(offsets->item), end = number_of(offsets->item->next);
    FUZZ_CHECK(end - begin == bytes_of(entry) && end - begin == entry->bytes);
    FUZZ_CHECK(has_elements(file, entry, data + begin));
}

static void check_header(const ashlar_checkpoint *file, const ashlar_json *header,
                         const uint8_t *data) {
    const ashlar_json *metadata = NULL;
    size_t count = 0;
    FUZZ_CHECK(header->kind == ASHLAR_JSON_OBJECT);
    for (const ashlar_json *member = header->item; member != NULL; member = member->next) {
        if (strcmp(member->key, "__metadata__") == 0) {
            FUZZ_CHECK(member->kind == ASHLAR_JSON_NULL ||
                       (metadata == NULL && member->kind == ASHLAR_JSON_OBJECT));
            metadata = member->kind == ASHLAR_JSON_NULL ? metadata : member;
            continue;
        }
        FUZZ_CHECK(strlen(member->key) == member->key_bytes);
        check_member(file, member, ashlar_checkpoint_find(file, NULL, member->key), data);
        count++;
    }
    FUZZ_CHECK(count_of(file) == count);
    for (const ashlar_json *p = metadata != NULL ? metadata->item : NULL; p != NULL; p = p->next) {
        const char *text = ashlar_checkpoint_metadata(file, p->key);
        FUZZ_CHECK(text != NULL && strcmp(text, p->text) == 0);
    }
}

/* The tensors cover the data without hole or overlap, and each is found by its name. */
static void check_cover(const ashlar_checkpoint *file, const uint8_t *data, size_t data_bytes) {
    size_t end = 0;
    for (size_t i = 0; i < count_of(file); i++) {
        const ashlar_checkpoint_tensor *entry = tensor_at(file, i);
        const size_t bytes = bytes_of(entry);
        FUZZ_CHECK(ashlar_checkpoint_find(file, NULL, entry->name) == entry);
        FUZZ_CHECK(bytes <= data_bytes - end);
        FUZZ_CHECK(has_elements(file, entry, data + end));
        end += bytes;
    }
    FUZZ_CHECK(end == data_bytes);
}

static void check_accepted(const ashlar_checkpoint *file, const uint8_t *data, size_t bytes) {
    uint64_t length = 0;
    ashlar_json *header = NULL;
    FUZZ_CHECK(bytes >= LENGTH_BYTES);
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) {
        length = length << 8 | data[i];
    }
    FUZZ_CHECK(length <= bytes - LENGTH_BYTES);
    const uint8_t *elements = data + LENGTH_BYTES + length;
    FUZZ_CHECK(json_parse((const char *)data + LENGTH_BYTES, length, &header) == ASHLAR_OK);
    check_cover(file, elements, bytes - LENGTH_BYTES - length);
    check_header(file, header, elements);
    FUZZ_CHECK(ashlar_checkpoint_find(file, NULL, "no such name, or so one hopes") == NULL);
    json_free(header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char path[FUZZ_PATH_BYTES];
    const int fd = fuzz_open_bytes(data, bytes, path);
    ashlar_checkpoint *file = NULL;
    const ashlar_status status = ashlar_checkpoint_open(path, &file);
    FUZZ_CHECK(status == ASHLAR_OK || status == ASHLAR_EFORMAT);
    FUZZ_CHECK((status == ASHLAR_OK) == (file != NULL));
    if (file != NULL) {
        check_accepted(file, data, bytes);
    } else {
        FUZZ_CHECK(strstr(ashlar_error_detail(), path) != NULL);
    }
    ashlar_checkpoint_close(file);
    (void)close(fd);
    return 0;
}
