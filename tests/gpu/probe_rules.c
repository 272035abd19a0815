/*
 * probe_rules.c - the driver's rules, each asked in a child process, since some end a process.
 *
 * What the library relies on is judged. What CUDA leaves open is only told: it decides nothing, but
 * is worth knowing when something fails elsewhere.
 */
#include "tests/gpu/probe.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef enum verdict { KEPT, BROKEN, TOLD, UNASKED } verdict;

enum { CHILD_SECONDS = 20, ELSEWHERE_CALLS = 3 };

static verdict judge(bool is_kept) {
    return is_kept ? KEPT : BROKEN;
}

/* ---- handles that are dead ---- */

static cu_stream make_dead(const probe *p) {
    cu_stream stream = NULL;
    (void)p->cuda->stream_create(&stream, CU_STREAM_UNORDERED);
    (void)p->cuda->stream_destroy(stream);
    return stream;
}

static verdict record_on_dead_stream(const probe *p) {
    cu_event event = NULL;
    (void)p->cuda->event_create(&event, CU_EVENT_NO_TIMING);
    (void)printf("cuEventRecord returns %u", p->cuda->event_record(event, make_dead(p)));
    return TOLD;
}

static verdict query_dead_stream(const probe *p) {
    (void)printf("cuStreamQuery returns %u", p->cuda->stream_query(make_dead(p)));
    return TOLD;
}

static verdict id_of_dead_stream(const probe *p) {
    unsigned long long id;
    (void)printf("cuStreamGetId returns %u", p->cuda->stream_get_id(make_dead(p), &id));
    return TOLD;
}

static verdict handle_comes_back(const probe *p) {
    cu_stream stream = NULL;
    const cu_stream dead = make_dead(p);
    (void)p->cuda->stream_create(&stream, CU_STREAM_UNORDERED);
    (void)printf("the next stream has %s handle", stream == dead ? "the same" : "another");
    return TOLD;
}

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

/* ---- virtual memory ---- */

static verdict part_of_a_mapping_stays(const probe *p) {
    cu_ptr ptr;
    if (probe_map(p, 2 * p->granularity, &ptr) != CU_SUCCESS) {
        return UNASKED;
    }
    const cu_result result = p->cuda->mem_unmap(ptr, p->granularity);
    (void)printf("cuMemUnmap of half a handle returns %u", result);
    return TOLD;
}

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

static bool holds(const probe *p, cu_ptr ptr, unsigned char value) {
    unsigned char seen = (unsigned char)~value;
    return p->cuda->memcpy_dtoh_async(&seen, ptr, 1, NULL) == CU_SUCCESS &&
           p->cuda->ctx_synchronize() == CU_SUCCESS && seen == value;
}

static verdict mapping_keeps_a_released_handle(const probe *p) {
    cu_ptr ptr;
    if (probe_map(p, p->granularity, &ptr) != CU_SUCCESS) {
        return UNASKED;
    }
    const bool is_kept = p->cuda->memset_d8_async(ptr, 7, p->granularity, NULL) == CU_SUCCESS &&
                         holds(p, ptr + p->granularity - 1, 7);
    (void)printf("its bytes are %s", is_kept ? "there" : "gone");
    return judge(is_kept);
}

/* ---- captures ---- */

typedef struct elsewhere {
    const probe *p;
    cu_context context;
    cu_event event;
    bool is_relaxed;
    cu_result results[ELSEWHERE_CALLS];
} elsewhere;

/* What a miss calls, while another thread captures. */
static void *call_elsewhere(void *argument) {
    elsewhere *e = argument;
    const probe *p = e->p;
    unsigned int mode = CU_CAPTURE_RELAXED;
    cu_ptr ptr = 0;
    if (p->cuda->ctx_push_current(e->context) != CU_SUCCESS ||
        (e->is_relaxed && p->cuda->thread_exchange_capture_mode(&mode) != CU_SUCCESS)) {
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
static bool capture_survives(const probe *p, bool is_relaxed, bool is_same_thread) {
    elsewhere e = {
        .p = p, .is_relaxed = is_relaxed, .results = {CU_UNKNOWN, CU_UNKNOWN, CU_UNKNOWN}};
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

static verdict plain_calls_beside_a_capture(const probe *p) {
    (void)capture_survives(p, false, false);
    return TOLD;
}

static verdict relaxed_calls_beside_a_capture(const probe *p) {
    return judge(capture_survives(p, true, false));
}

static verdict relaxed_calls_within_a_capture(const probe *p) {
    return judge(capture_survives(p, true, true));
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
                  p->cuda->stream_synchronize(stream) == CU_SUCCESS && holds(p, ptr, 9);
    }
    (void)printf("launched twice, it %s", is_kept ? "filled twice" : "failed");
    return judge(is_kept);
}

/* ---- what waits for the device ---- */

/* Fill `ptr` so often that a call made now finds the stream at work. */
static cu_stream keep_busy(const probe *p, cu_ptr ptr, size_t bytes) {
    cu_stream stream = NULL;
    (void)p->cuda->stream_create(&stream, CU_STREAM_UNORDERED);
    for (unsigned char i = 0; i < 200; i++) {
        (void)p->cuda->memset_d8_async(ptr, i, bytes, stream);
    }
    return stream;
}

static verdict calls_that_wait(const probe *p) {
    const cu_mem_access access = probe_access(p);
    const size_t bytes = 16 * p->granularity;
    cu_ptr busy, other;
    bool is_idle[2];
    if (probe_map(p, bytes, &busy) != CU_SUCCESS ||
        probe_map(p, p->granularity, &other) != CU_SUCCESS) {
        return UNASKED;
    }
    for (int i = 0; i < 2; i++) {
        const cu_stream stream = keep_busy(p, busy, bytes);
        (void)(i == 0 ? p->cuda->mem_set_access(other, p->granularity, &access, 1)
                      : p->cuda->mem_unmap(other, p->granularity));
        is_idle[i] = p->cuda->stream_query(stream) == CU_SUCCESS;
        (void)p->cuda->stream_synchronize(stream);
    }
    (void)printf("behind cuMemSetAccess another stream's work is %s, behind cuMemUnmap %s",
                 is_idle[0] ? "done" : "under way", is_idle[1] ? "done" : "under way");
    return TOLD;
}

/* ---- all of them ---- */

static const struct {
    const char *name;
    verdict (*ask)(const probe *p);
    bool is_told; /* nothing relies on it, so that it may end the process, too */
} rules[] = {
#define JUDGED(name) \
    { #name, name, false }
#define ONLY_TOLD(name) \
    { #name, name, true }
    ONLY_TOLD(record_on_dead_stream),
    ONLY_TOLD(query_dead_stream),
    ONLY_TOLD(id_of_dead_stream),
    ONLY_TOLD(handle_comes_back),
    JUDGED(event_outlives_its_stream),
    ONLY_TOLD(part_of_a_mapping_stays),
    JUDGED(handle_is_mapped_whole),
    JUDGED(mapping_keeps_a_released_handle),
    ONLY_TOLD(plain_calls_beside_a_capture),
    JUDGED(relaxed_calls_beside_a_capture),
    JUDGED(relaxed_calls_within_a_capture),
    JUDGED(graph_runs_again),
    ONLY_TOLD(calls_that_wait),
#undef JUDGED
#undef ONLY_TOLD
};

static void ask_in_child(size_t number) {
    probe p;
    (void)alarm(CHILD_SECONDS);
    (void)printf("%s: ", rules[number].name);
    (void)fflush(stdout);
    const verdict found = probe_open(&p) ? rules[number].ask(&p) : UNASKED;
    (void)fflush(stdout);
    _exit((int)found);
}

int probe_rules(void) {
    static const char *const words[] = {"as relied on", "OTHERWISE", "told", "could not be asked"};
    int counts[4] = {0};
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        int status = 0;
        (void)fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            ask_in_child(i);
        }
        if (child < 0 || waitpid(child, &status, 0) != child) {
            (void)printf("%s: no process for it\n", rules[i].name);
            return 1;
        }
        const bool has_ended = WIFEXITED(status) && WEXITSTATUS(status) <= UNASKED;
        const int found = has_ended ? WEXITSTATUS(status) : rules[i].is_told ? TOLD : BROKEN;
        counts[found]++;
        if (has_ended) {
            (void)printf(" (%s)\n", words[found]);
        } else {
            (void)printf("it ends the process by signal %d\n",
                         WIFSIGNALED(status) ? WTERMSIG(status) : 0);
        }
    }
    (void)printf("%d rules as relied on, %d otherwise, %d told, %d could not be asked\n",
                 counts[KEPT], counts[BROKEN], counts[TOLD], counts[UNASKED]);
    return counts[BROKEN] > 0 ? 1 : counts[KEPT] == 0 ? 77 : 0;
}
