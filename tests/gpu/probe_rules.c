/*
 * probe_rules.c - the driver's rules, each asked in a child process, since some end a process; and
 * those about streams and captures.
 *
 * What is only told decides nothing, but is worth knowing when something fails elsewhere.
 */
#include "tests/gpu/probe.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_SECONDS = 20, ELSEWHERE_CALLS = 3 };

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
                  p->cuda->stream_synchronize(stream) == CU_SUCCESS && probe_holds(p, ptr, 9);
    }
    (void)printf("launched twice, it %s", is_kept ? "filled twice" : "failed");
    return judge(is_kept);
}

/* ---- all of them ---- */

static const probe_rule rules_streams[] = {
    RULE_TOLD(record_on_dead_stream),
    RULE_TOLD(query_dead_stream),
    RULE_TOLD(id_of_dead_stream),
    RULE_TOLD(handle_comes_back),
    RULE_JUDGED(event_outlives_its_stream),
    RULE_TOLD(plain_calls_beside_a_capture),
    RULE_JUDGED(relaxed_calls_beside_a_capture),
    RULE_JUDGED(relaxed_calls_within_a_capture),
    RULE_JUDGED(graph_runs_again),
    {NULL, NULL, false},
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
    static const char *const words[] = {"as relied on", "OTHERWISE", "told", "could not be asked"};
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
    const int found = has_ended ? WEXITSTATUS(status) : rule->is_told ? TOLD : BROKEN;
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
    static const probe_rule *const lists[] = {rules_streams, probe_rules_memory, probe_rules_waits};
    int counts[4] = {0};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        for (const probe_rule *rule = lists[i]; rule->name != NULL; rule++) {
            if (!ask(rule, counts)) {
                return 1;
            }
        }
    }
    (void)printf("%d rules as relied on, %d otherwise, %d told, %d could not be asked\n",
                 counts[KEPT], counts[BROKEN], counts[TOLD], counts[UNASKED]);
    return counts[BROKEN] > 0 ? 1 : counts[KEPT] == 0 ? 77 : 0;
}
