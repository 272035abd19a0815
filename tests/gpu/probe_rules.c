/*
 * probe_rules.c - the driver's rules, each asked in a child process: about streams and captures;
 * handles, mappings side by side, and work that goes across them; which calls wait for work; and
 * which memory is pageable.
 */
#include "tests/gpu/probe.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef enum verdict { KEPT, BROKEN, UNASKED } verdict;

typedef struct probe_rule {
    const char *name;
    verdict (*ask)(const probe *p);
} probe_rule;

#define RULE(name) \
    { #name, name }

static verdict judge(bool is_kept) {
    return is_kept ? KEPT : BROKEN;
}

enum { CHILD_SECONDS = 20, ELSEWHERE_CALLS = 3 };

static verdict event_outlives_its_stream(const probe *p) {
    cu_stream stream = NULL;
    cu_event event = NULL;
    (void)p->cuda->stream_create(&stream, CU_STREAM_UNORDERED);
    (void)p->cuda->event_create(&event, CU_EVENT_NO_TIMING);
    (void)p->cuda->event_record(event, stream);
    (void)p->cuda->stream_destroy(stream);
    const cu_result waited = p->cuda->event_synchronize(event);
    const cu_result asked = p->cuda->event_query(event);
    (void)printf("waiting returns %u, asking %u", waited, asked);
    return judge(waited == CU_SUCCESS && asked == CU_SUCCESS);
}

/* ---- captures ---- */

typedef struct elsewhere {
    const probe *p;
    cu_context context;
    cu_event event;
    cu_result results[ELSEWHERE_CALLS];
} elsewhere;

/* What a miss calls, while another thread captures. */
static void *call_elsewhere(void *argument) {
    elsewhere *e = argument;
    const probe *p = e->p;
    unsigned int mode = CU_CAPTURE_RELAXED;
    cu_ptr ptr = 0;
    if (p->cuda->ctx_push_current(e->context) != CU_SUCCESS ||
        p->cuda->thread_exchange_capture_mode(&mode) != CU_SUCCESS) {
        return NULL;
    }
    e->results[0] = p->cuda->event_query(e->event);
    e->results[1] = probe_map(p, p->granularity, &ptr);
    if (e->results[1] == CU_SUCCESS) {
        probe_unmap(p, ptr, p->granularity);
    }
    e->results[2] = p->cuda->mem_alloc(&ptr, p->granularity);
    if (e->results[2] == CU_SUCCESS) {
        (void)p->cuda->mem_free(ptr);
    }
    return NULL;
}

/* Whether a capture in global mode survives those calls. False also where they fail. */
static bool capture_survives(const probe *p, bool is_same_thread) {
    elsewhere e = {.p = p, .results = {CU_UNKNOWN, CU_UNKNOWN, CU_UNKNOWN}};
    cu_stream stream = NULL;
    cu_graph graph = NULL;
    pthread_t thread;
    (void)p->cuda->primary_ctx_retain(&e.context, p->device);
    (void)p->cuda->stream_create(&stream, CU_STREAM_UNORDERED);
    (void)p->cuda->event_create(&e.event, CU_EVENT_NO_TIMING);
    (void)p->cuda->event_record(e.event, stream);
    (void)p->cuda->ctx_synchronize();
    if (p->cuda->stream_begin_capture(stream, CU_CAPTURE_GLOBAL) != CU_SUCCESS) {
        return false;
    }
    if (is_same_thread) {
        (void)call_elsewhere(&e);
    } else if (pthread_create(&thread, NULL, call_elsewhere, &e) == 0) {
        (void)pthread_join(thread, NULL);
    }
    const cu_result ended = p->cuda->stream_end_capture(stream, &graph);
    (void)printf("asking an event returns %u, mapping %u, cuMemAlloc %u, ending the capture %u",
                 e.results[0], e.results[1], e.results[2], ended);
    return ended == CU_SUCCESS && e.results[0] == CU_SUCCESS && e.results[1] == CU_SUCCESS &&
           e.results[2] == CU_SUCCESS;
}

static verdict relaxed_calls_beside_a_capture(const probe *p) {
    return judge(capture_survives(p, false));
}

static verdict relaxed_calls_within_a_capture(const probe *p) {
    return judge(capture_survives(p, true));
}

static verdict graph_runs_again(const probe *p) {
    cu_stream stream = NULL;
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    cu_ptr ptr;
    bool is_kept = probe_map(p, p->granularity, &ptr) == CU_SUCCESS &&
                   p->cuda->stream_create(&stream, CU_STREAM_UNORDERED) == CU_SUCCESS &&
                   p->cuda->stream_begin_capture(stream, CU_CAPTURE_RELAXED) == CU_SUCCESS &&
                   p->cuda->memset_d8_async(ptr, 9, 64, stream) == CU_SUCCESS &&
                   p->cuda->stream_end_capture(stream, &graph) == CU_SUCCESS &&
                   p->cuda->graph_instantiate(&exec, graph, 0) == CU_SUCCESS;
    for (unsigned char i = 0; i < 2 && is_kept; i++) {
        is_kept = p->cuda->memset_d8_async(ptr, i, 64, stream) == CU_SUCCESS &&
                  p->cuda->graph_launch(exec, stream) == CU_SUCCESS &&
                  p->cuda->stream_synchronize(stream) == CU_SUCCESS && probe_holds(p, ptr, 9);
    }
    (void)printf("launched twice, it %s", is_kept ? "filled twice" : "failed");
    return judge(is_kept);
}

enum { HANDLES = 64 };

/* ---- one handle ---- */

static verdict handle_is_mapped_whole(const probe *p) {
    const cu_mem_prop prop = probe_prop(p);
    cu_mem_handle handle;
    cu_ptr ptr;
    if (p->cuda->mem_create(&handle, 2 * p->granularity, &prop, 0) != CU_SUCCESS ||
        p->cuda->mem_address_reserve(&ptr, 2 * p->granularity, 0, 0, 0) != CU_SUCCESS) {
        return UNASKED;
    }
    const cu_result result = p->cuda->mem_map(ptr, p->granularity, p->granularity, handle, 0);
    (void)printf("cuMemMap at an offset returns %u", result);
    return judge(result != CU_SUCCESS);
}

static verdict mapping_keeps_a_released_handle(const probe *p) {
    cu_ptr ptr;
    if (probe_map(p, p->granularity, &ptr) != CU_SUCCESS) {
        return UNASKED;
    }
    const bool is_kept = p->cuda->memset_d8_async(ptr, 7, p->granularity, NULL) == CU_SUCCESS &&
                         probe_holds(p, ptr + p->granularity - 1, 7);
    (void)printf("its bytes are %s", is_kept ? "there" : "gone");
    return judge(is_kept);
}

/* ---- handles side by side ---- */

/* Map `count` handles next to each other, and open all of them by one call. */
static bool map_row(const probe *p, size_t count, cu_ptr *base, cu_mem_handle *handles) {
    const cu_mem_prop prop = probe_prop(p);
    const cu_mem_access access = probe_access(p);
    const size_t bytes = p->granularity;
    bool is_mapped = p->cuda->mem_address_reserve(base, count * bytes, 0, 0, 0) == CU_SUCCESS;
    for (size_t i = 0; i < count && is_mapped; i++) {
        is_mapped = p->cuda->mem_create(&handles[i], bytes, &prop, 0) == CU_SUCCESS &&
                    p->cuda->mem_map(*base + i * bytes, bytes, 0, handles[i], 0) == CU_SUCCESS;
    }
    return is_mapped && p->cuda->mem_set_access(*base, count * bytes, &access, 1) == CU_SUCCESS;
}

/* Whether each handle of a row has that value at both ends. */
static bool row_holds(const probe *p, size_t count, cu_ptr base, unsigned char value) {
    bool is_so = true;
    for (size_t i = 0; i < count && is_so; i++) {
        const cu_ptr at = base + i * p->granularity;
        is_so = probe_holds(p, at, value) && probe_holds(p, at + p->granularity - 1, value);
    }
    return is_so;
}

static verdict one_call_opens_many_handles(const probe *p) {
    cu_mem_handle handles[HANDLES];
    cu_ptr base = 0;
    bool is_kept = map_row(p, HANDLES, &base, handles);
    for (size_t i = 0; i < HANDLES && is_kept; i++) {
        is_kept = p->cuda->memset_d8_async(base + i * p->granularity, 7, p->granularity, NULL) ==
                  CU_SUCCESS;
    }
    is_kept = is_kept && row_holds(p, HANDLES, base, 7);
    (void)printf("%d handles are %s", HANDLES, is_kept ? "open" : "not all open");
    return judge(is_kept);
}

static verdict fills_and_copies_cross_handles(const probe *p) {
    cu_mem_handle handles[HANDLES];
    cu_ptr base = 0;
    const size_t half = HANDLES / 2 * p->granularity;
    const bool is_kept = map_row(p, HANDLES, &base, handles) &&
                         p->cuda->memset_d8_async(base, 5, half, NULL) == CU_SUCCESS &&
                         p->cuda->memcpy_dtod_async(base + half, base, half, NULL) == CU_SUCCESS &&
                         row_holds(p, HANDLES, base, 5);
    (void)printf("a fill and a copy of %d handles each are %s", HANDLES / 2,
                 is_kept ? "whole" : "not whole");
    return judge(is_kept);
}

static verdict graphs_cross_handles(const probe *p) {
    cu_mem_handle handles[HANDLES];
    cu_ptr base = 0;
    cu_stream stream = NULL;
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    const size_t half = HANDLES / 2 * p->granularity;
    const bool is_kept =
        map_row(p, HANDLES, &base, handles) &&
        p->cuda->stream_create(&stream, CU_STREAM_UNORDERED) == CU_SUCCESS &&
        p->cuda->stream_begin_capture(stream, CU_CAPTURE_RELAXED) == CU_SUCCESS &&
        p->cuda->memset_d8_async(base, 3, half, stream) == CU_SUCCESS &&
        p->cuda->memcpy_dtod_async(base + half, base, half, stream) == CU_SUCCESS &&
        p->cuda->stream_end_capture(stream, &graph) == CU_SUCCESS &&
        p->cuda->graph_instantiate(&exec, graph, 0) == CU_SUCCESS &&
        p->cuda->graph_launch(exec, stream) == CU_SUCCESS &&
        p->cuda->stream_synchronize(stream) == CU_SUCCESS && row_holds(p, HANDLES, base, 3);
    (void)printf("a captured fill and copy of %d handles each are %s", HANDLES / 2,
                 is_kept ? "whole" : "not whole");
    return judge(is_kept);
}

/* The middle one of three moves while the others are in use. All keep their bytes. */
static verdict a_handle_moves_while_its_neighbours_work(const probe *p) {
    const cu_mem_access access = probe_access(p);
    const size_t bytes = p->granularity;
    cu_mem_handle handles[3];
    cu_ptr base = 0, other = 0;
    cu_stream stream = NULL;
    if (!map_row(p, 3, &base, handles) ||
        p->cuda->stream_create(&stream, CU_STREAM_UNORDERED) != CU_SUCCESS ||
        p->cuda->mem_address_reserve(&other, bytes, 0, 0, 0) != CU_SUCCESS ||
        p->cuda->memset_d8_async(base + bytes, 7, bytes, NULL) != CU_SUCCESS ||
        p->cuda->ctx_synchronize() != CU_SUCCESS) {
        return UNASKED;
    }
    probe_keep_busy(p, stream, base, bytes);
    probe_keep_busy(p, stream, base + 2 * bytes, bytes);
    const cu_result gone = p->cuda->mem_unmap(base + bytes, bytes);
    const cu_result mapped = p->cuda->mem_map(other, bytes, 0, handles[1], 0);
    const cu_result opened = p->cuda->mem_set_access(other, bytes, &access, 1);
    const cu_result ended = p->cuda->stream_synchronize(stream);
    const bool is_kept = gone == CU_SUCCESS && mapped == CU_SUCCESS && opened == CU_SUCCESS &&
                         ended == CU_SUCCESS && row_holds(p, 1, other, 7) &&
                         row_holds(p, 1, base, PROBE_FILLS - 1) &&
                         row_holds(p, 1, base + 2 * bytes, PROBE_FILLS - 1);
    (void)printf("unmapping it returns %u, mapping %u, opening %u, their work %u", gone, mapped,
                 opened, ended);
    return judge(is_kept);
}

enum { BUSY_HANDLES = 16, FREES = 8 };

static bool is_idle(const probe *p, cu_stream stream) {
    return p->cuda->stream_query(stream) == CU_SUCCESS;
}

/* ---- calls that wait ---- */

/* Free blocks that no work uses, each behind work of a stream. The preload waits so where it may
 * not wait for the device: during a capture. */
static verdict race_frees(const probe *p, size_t free_bytes) {
    const size_t bytes = BUSY_HANDLES * p->granularity;
    cu_stream stream = NULL;
    cu_ptr busy, other;
    int late = 0, done = 0;
    if (probe_map(p, bytes, &busy) != CU_SUCCESS ||
        p->cuda->stream_create(&stream, CU_STREAM_UNORDERED) != CU_SUCCESS) {
        return UNASKED;
    }
    for (int i = 0; i < FREES; i++) {
        if (p->cuda->mem_alloc(&other, free_bytes) != CU_SUCCESS) {
            return UNASKED;
        }
        probe_keep_busy(p, stream, busy, bytes);
        const bool was_busy = !is_idle(p, stream);
        if (p->cuda->mem_free(other) != CU_SUCCESS) {
            return BROKEN;
        }
        late += was_busy;
        done += was_busy && is_idle(p, stream);
        (void)p->cuda->stream_synchronize(stream);
    }
    (void)printf("of %d times that work was under way, it was done %d times behind the free", late,
                 done);
    return late == 0 ? UNASKED : judge(done == late);
}

static verdict a_small_free_waits_for_all_work(const probe *p) {
    return race_frees(p, 1);
}

static verdict a_large_free_waits_for_all_work(const probe *p) {
    return race_frees(p, BUSY_HANDLES * p->granularity);
}

static verdict a_free_within_a_capture_waits_for_all_work(const probe *p) {
    unsigned int mode = CU_CAPTURE_RELAXED;
    cu_stream captured = NULL;
    cu_graph graph = NULL;
    if (p->cuda->stream_create(&captured, CU_STREAM_UNORDERED) != CU_SUCCESS ||
        p->cuda->stream_begin_capture(captured, CU_CAPTURE_GLOBAL) != CU_SUCCESS ||
        p->cuda->thread_exchange_capture_mode(&mode) != CU_SUCCESS) {
        return UNASKED;
    }
    const verdict found = race_frees(p, 1);
    const cu_result ended = p->cuda->stream_end_capture(captured, &graph);
    (void)printf(", and ending the capture returns %u", ended);
    return ended == CU_SUCCESS ? found : BROKEN;
}

/* ---- host memory ---- */

/* *known: as the library tells them apart, page-locked memory and a device's. */
static cu_result ask_type(const probe *p, const void *ptr, bool *known) {
    unsigned int type = 0;
    const cu_result result =
        p->cuda->pointer_get_attribute(&type, CU_POINTER_MEMORY_TYPE, (cu_ptr)(uintptr_t)ptr);
    *known = result == CU_SUCCESS && (type == CU_MEMORY_HOST || type == CU_MEMORY_DEVICE);
    return result;
}

static verdict pageable_memory_is_told_apart(const probe *p) {
    static char global[64];
    char local[64];
    void *heap = malloc(64), *locked = NULL;
    bool is_known[4];
    if (heap == NULL || p->cuda->mem_host_alloc(&locked, 64, 0) != CU_SUCCESS) {
        free(heap);
        return UNASKED;
    }
    const cu_result results[] = {ask_type(p, local, &is_known[0]),
                                 ask_type(p, global, &is_known[1]), ask_type(p, heap, &is_known[2]),
                                 ask_type(p, locked, &is_known[3])};
    free(heap);
    (void)printf("asking for the type of the stack returns %u, of a static %u, of the heap %u, of "
                 "page-locked memory %u",
                 results[0], results[1], results[2], results[3]);
    return judge(!is_known[0] && !is_known[1] && !is_known[2] && is_known[3]);
}

/* ---- all of them ---- */

static const probe_rule rules[] = {
    RULE(event_outlives_its_stream),
    RULE(relaxed_calls_beside_a_capture),
    RULE(relaxed_calls_within_a_capture),
    RULE(graph_runs_again),
    RULE(handle_is_mapped_whole),
    RULE(mapping_keeps_a_released_handle),
    RULE(one_call_opens_many_handles),
    RULE(fills_and_copies_cross_handles),
    RULE(graphs_cross_handles),
    RULE(a_handle_moves_while_its_neighbours_work),
    RULE(a_small_free_waits_for_all_work),
    RULE(a_large_free_waits_for_all_work),
    RULE(a_free_within_a_capture_waits_for_all_work),
    RULE(pageable_memory_is_told_apart),
};

static void ask_in_child(const probe_rule *rule) {
    probe p;
    (void)alarm(CHILD_SECONDS);
    (void)printf("%s: ", rule->name);
    (void)fflush(stdout);
    const verdict found = probe_open(&p) ? rule->ask(&p) : UNASKED;
    (void)fflush(stdout);
    _exit((int)found);
}

/* False: there is no process to ask it in. */
static bool ask(const probe_rule *rule, int *counts) {
    static const char *const words[] = {"as relied on", "OTHERWISE", "could not be asked"};
    int status = 0;
    (void)fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        ask_in_child(rule);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        (void)printf("%s: no process for it\n", rule->name);
        return false;
    }
    const bool has_ended = WIFEXITED(status) && WEXITSTATUS(status) <= UNASKED;
    const int found = has_ended ? WEXITSTATUS(status) : BROKEN;
    counts[found]++;
    if (has_ended) {
        (void)printf(" (%s)\n", words[found]);
    } else {
        (void)printf("it ends the process by signal %d\n",
                     WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    return true;
}

int probe_rules(void) {
    int counts[3] = {0};
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (!ask(&rules[i], counts)) {
            return 1;
        }
    }
    (void)printf("%d rules as relied on, %d otherwise, %d could not be asked\n", counts[KEPT],
                 counts[BROKEN], counts[UNASKED]);
    return counts[BROKEN] > 0 ? 1 : counts[KEPT] == 0 ? 77 : 0;
}
