/* torch_equal.c - torch_equal BYTES FILE...: whether PyTorch's rules are equal to what event files
 * recorded on a device of so many bytes. Prints a line for each; status 1: some are not. */
#include <stdio.h>
#include <stdlib.h>

#include "allocator/base/file.h"
#include "allocator/base/host.h"
#include "bench/replay/torch.h"

static ashlar_status compare(const char *path, uint64_t bytes, bool *is_equal) {
    char *text = NULL;
    size_t size;
    ashlar_events *events = NULL;
    ashlar_torch_settings settings;
    ashlar_torch_result result;
    ASHLAR_TRY(ashlar__file_read(path, &text, &size));
    ashlar_status status = ashlar__events_parse(path, text, size, &events);
    ashlar__host_free(text);
    ASHLAR_THEN(status, ashlar__torch_settings_recorded(events, &settings));
    const ashlar_torch_config config = {
        .settings = &settings, .device_bytes = bytes, .is_recorded = true};
    ASHLAR_THEN(status, ashlar__torch_compare(events, &config, &settings, &result));
    ashlar__events_free(events);
    ASHLAR_TRY(status);
    *is_equal = result.left[0] == '\0' && result.equal_events == result.segment_events;
    printf("%s: %zu of %zu segment events, %zu of %zu places, %zu ties, %zu failures%s%s\n", path,
           result.equal_events, result.segment_events, result.equal_places, result.places,
           result.ties, result.failures, *is_equal ? "" : "; left: ", result.left);
    return ASHLAR_OK;
}

int main(int argc, char **argv) {
    int failed = 0;
    for (int i = 2; i < argc; i++) {
        bool is_equal = false;
        if (compare(argv[i], strtoull(argv[1], NULL, 10), &is_equal) != ASHLAR_OK) {
            printf("%s\n", ashlar_error_detail());
        }
        failed |= !is_equal;
    }
    return failed;
}
