/* random_graphs.c - acts of program_random that capture a stream, make and launch its graph, and
 * load modules. */
#include "program_random.h"

static void let_go_of_blocks(void) {
    for (int i = 0; i < BLOCKS; i++) {
        p.blocks[i].is_in_graph = false;
    }
}

void act_begin(const draw *d) {
    const int on = pick_stream(d->a);
    if (p.has_no_captures || p.g.is_capturing || p.g.exec != NULL || on == 0) {
        return;
    }
    p.g = (graph_state){.is_capturing = true,
                        .mode = (unsigned int)(d->b % 3),
                        .context = p.now,
                        .stream = on,
                        .thread = p.thread};
    say("begin capture of stream %d of context %d, mode %u", on, p.now, p.g.mode);
    MUST(p.cu.begin_capture(p.contexts[p.now].streams[on].handle, p.g.mode));
}

/* By the thread that began it. */
void act_end(const draw *d) {
    (void)d;
    if (!p.g.is_capturing || p.thread != p.g.thread) {
        return;
    }
    say("end capture");
    MUST(p.cu.set_current(p.contexts[p.g.context].handle));
    MUST(p.cu.end_capture(p.contexts[p.g.context].streams[p.g.stream].handle, &p.g.graph));
    p.g.is_capturing = false;
    if (!SERVED(p.cu.graph_instantiate(&p.g.exec, p.g.graph, 0))) {
        p.g.exec = NULL;
        let_go_of_blocks();
    }
    MUST(p.cu.graph_destroy(p.g.graph));
    p.g.graph = NULL;
}

/* On any stream of its context, behind all earlier uses of its blocks. */
void act_launch(const draw *d) {
    if (p.g.exec == NULL) {
        return;
    }
    p.now = p.g.context;
    MUST(p.cu.set_current(p.contexts[p.now].handle));
    const int on = pick_stream(d->a);
    say("launch on stream %d", on);
    for (int i = 0; i < BLOCKS; i++) {
        if (p.blocks[i].ptr != 0 && p.blocks[i].is_in_graph) {
            order(&p.blocks[i], on);
        }
    }
    if (!SERVED(p.cu.graph_launch(p.g.exec, p.contexts[p.now].streams[on].handle))) {
        return;
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (p.blocks[i].is_in_graph && p.blocks[i].graph_value != NOWHERE) {
            p.blocks[i].value = p.blocks[i].graph_value;
        }
    }
}

/* What was launched still runs. */
void act_destroy(const draw *d) {
    (void)d;
    if (p.g.exec == NULL) {
        return;
    }
    say("destroy the graph");
    MUST(p.cu.graph_exec_destroy(p.g.exec));
    p.g = (graph_state){0};
    let_go_of_blocks();
}

void act_module(const draw *d) {
    static const unsigned int image[4] = {0xBA55ED50u}; /* as a compiled one begins */
    cu_module *m = &p.modules[p.now][d->a % MODULES];
    if (!may_call_unsafe()) {
        return;
    }
    say("%s module %d of context %d", *m == NULL ? "load" : "unload", (int)(d->a % MODULES), p.now);
    if (*m != NULL) {
        MUST(p.cu.module_unload(*m));
        *m = NULL;
    } else if (!SERVED(p.cu.module_load(m, image))) {
        *m = NULL;
    }
}
