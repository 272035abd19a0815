/* weights_file.c - begins a training with the weights of another, or of another program. */
#include <stdio.h>
#include <string.h>

#include "allocator/base/error.h"
#include "rnn/programs/program.h"

enum { NAME_BYTES = 256 };

ashlar_status ashlar__weights_map(const ashlar_option_list *words, ashlar_load_options *out) {
    static char texts[ASHLAR_OPTION_LIST_MAX][NAME_BYTES];
    static ashlar_checkpoint_pair pairs[ASHLAR_OPTION_LIST_MAX];
    for (size_t i = 0; i < words->count; i++) {
        const char *equals = strchr(words->items[i], '=');
        ASHLAR_FAIL_IF(equals == NULL || strlen(words->items[i]) >= NAME_BYTES, ASHLAR_EINVAL,
                       "--map: \"%.40s\" is no OLD=NEW of less than %d bytes", words->items[i],
                       NAME_BYTES);
        (void)snprintf(texts[i], NAME_BYTES, "%s", words->items[i]);
        char *value = texts[i] + (equals - words->items[i]);
        *value++ = '\0';
        pairs[i] = (ashlar_checkpoint_pair){texts[i], strcmp(value, "-") == 0 ? NULL : value};
    }
    *out = (ashlar_load_options){.renames = pairs, .rename_count = words->count};
    return ASHLAR_OK;
}

static void print_kind(const char *path, const char *what, const ashlar_load_count *kind,
                       const char *then) {
    if (kind->count > 0) {
        char more[32] = "";
        if (kind->count > 1) {
            (void)snprintf(more, sizeof more, " and %zu more", kind->count - 1);
        }
        printf("--init %s: %s: '%s'%s%s\n", path, what, kind->first, more, then);
    }
}

ashlar_status ashlar__weights_init(const char *path, const ashlar_option_list *map, bool is_quiet,
                                   ashlar_arena *arena) {
    ashlar_load_options options;
    ashlar_load_report report;
    ashlar_checkpoint *file = NULL;
    ASHLAR_TRY(ashlar__weights_map(map, &options));
    options.flags = ASHLAR_CHECKPOINT_PARTIAL;
    ashlar_status status = ashlar_checkpoint_open(path, &file);
    ASHLAR_THEN(status, ashlar_checkpoint_load(arena, file, &options, NULL, &report));
    if (status == ASHLAR_OK && report.loaded == 0) {
        status = ashlar__fail(ASHLAR_EFORMAT,
                              "--init: %s has none of this model's tensors, such as '%s'; map its "
                              "names with --map OLD=NEW",
                              path, report.missing.first != NULL ? report.missing.first : "");
    }
    if (status == ASHLAR_OK && !is_quiet) {
        printf("--init %s: %zu tensors, %zu of them converted\n", path, report.loaded,
               report.converted);
        print_kind(path, "not in the file", &report.missing, "; begun anew");
        print_kind(path, "not of this model", &report.left_over, "");
        print_kind(path, "of another shape", &report.other_shape, "; begun anew");
        print_kind(path, "of another type", &report.other_type, "; begun anew");
        fflush(stdout);
    }
    ashlar_checkpoint_close(file);
    return status;
}
