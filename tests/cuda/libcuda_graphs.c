/*
 * libcuda_graphs.c - what executable graphs of the fake driver take of a device for themselves,
 * where contexts do (overhead= in soft.h): once when they are made, and once more at the first
 * launch, which uploads them.
 */
#include <stdlib.h>

#include "libcuda.h"

#include "allocator/soft/soft_state.h"

/* Both are NULL where nothing is taken. */
typedef struct fake_exec {
    struct fake_exec *next;
    cu_graph_exec exec;
    soft_device *context;
    soft_memory *made, *uploaded;
    bool is_launched;
} fake_exec;

static fake_exec *execs; /* Lock: the software device's */

static void drop(soft_memory *memory) {
    if (memory != NULL) {
        ashlar__soft_memory_drop(memory);
    }
}

static void drop_exec(fake_exec **link) {
    fake_exec *gone = *link;
    *link = gone->next;
    drop(gone->made);
    drop(gone->uploaded);
    free(gone);
}

static fake_exec **find_exec(cu_graph_exec exec) {
    fake_exec **link = &execs;
    while (*link != NULL && (*link)->exec != exec) {
        link = &(*link)->next;
    }
    return link;
}

cu_result ashlar_fake_graph_instantiate(cu_graph_exec *exec, cu_graph graph,
                                        unsigned long long flags) {
    soft_device *context;
    fake_exec *made = calloc(1, sizeof *made);
    cu_result result = ashlar__soft_enter_context(ASHLAR_DRIVER_FN_COUNT, &context);
    if (made == NULL || result != CU_SUCCESS) {
        free(made);
        return result != CU_SUCCESS ? result : ashlar__soft_leave(CU_OUT_OF_MEMORY);
    }
    made->context = context;
    result = ashlar__soft_leave(ashlar__soft_overhead_take(context, &made->made));
    result = result == CU_SUCCESS ? ashlar__soft_graph_instantiate(exec, graph, flags) : result;
    (void)ashlar__soft_enter(ASHLAR_DRIVER_FN_COUNT);
    made->next = execs;
    execs = made;
    if (result == CU_SUCCESS) {
        made->exec = *exec;
    } else {
        drop_exec(&execs);
    }
    return ashlar__soft_leave(result);
}

cu_result ashlar_fake_graph_launch(cu_graph_exec exec, cu_stream stream) {
    cu_result result = ashlar__soft_enter(ASHLAR_DRIVER_FN_COUNT);
    if (result != CU_SUCCESS) {
        return result;
    }
    fake_exec *known = *find_exec(exec);
    if (known != NULL && !known->is_launched) {
        result = ashlar__soft_overhead_take(known->context, &known->uploaded);
        known->is_launched = result == CU_SUCCESS;
    }
    (void)ashlar__soft_leave(CU_SUCCESS);
    return result == CU_SUCCESS ? ashlar__soft_graph_launch(exec, stream) : result;
}

cu_result ashlar_fake_graph_exec_destroy(cu_graph_exec exec) {
    const cu_result result = ashlar__soft_graph_exec_destroy(exec);
    if (result != CU_SUCCESS || ashlar__soft_enter(ASHLAR_DRIVER_FN_COUNT) != CU_SUCCESS) {
        return result;
    }
    fake_exec **link = find_exec(exec);
    if (*link != NULL) {
        drop_exec(link);
    }
    return ashlar__soft_leave(CU_SUCCESS);
}

void ashlar_fake_graphs_forget(const soft_device *context) {
    if (ashlar__soft_enter(ASHLAR_DRIVER_FN_COUNT) != CU_SUCCESS) {
        return;
    }
    for (fake_exec **link = &execs; *link != NULL;) {
        if ((*link)->context == context) {
            drop_exec(link);
        } else {
            link = &(*link)->next;
        }
    }
    (void)ashlar__soft_leave(CU_SUCCESS);
}
