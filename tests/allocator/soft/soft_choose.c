/* soft_choose.c - lets a test choose which queued work runs next, to go through all orders. */
#include "tests/allocator/soft/soft_probe.h"

static soft_chooser *chooser; /* NULL: the seed decides. Lock: the device's */

/* The op that ran last in this wait, as a copy. What its pointers point to may be gone. */
static struct {
    soft_op op;      /* number 0: nothing ran yet */
    uint64_t serial; /* of its stream */
    bool is_legacy;
} last;

static bool meet(const soft_operand *a, size_t a_bytes, const soft_operand *b, size_t b_bytes) {
    const uintptr_t from_a = (uintptr_t)a->ptr, from_b = (uintptr_t)b->ptr;
    return from_a != 0 && from_b != 0 && from_a < from_b + b_bytes && from_b < from_a + a_bytes;
}

static bool touches_memory(const soft_op *op) {
    return op->kind == SOFT_OP_HOST_FN || op->kind == SOFT_OP_COPY || op->kind == SOFT_OP_FILL;
}

/* Whether it can make a difference that `op` runs before `next`, and not after it. A host function
 * may touch any memory. */
static bool is_order_seen(const soft_op *op, const soft_op *next) {
    if (next->awaits != NULL && next->awaits == op->point) {
        return true;
    }
    if (!touches_memory(op) || !touches_memory(next)) {
        return false;
    }
    return op->kind == SOFT_OP_HOST_FN || next->kind == SOFT_OP_HOST_FN ||
           meet(&op->dst, op->bytes, &next->dst, next->bytes) ||
           meet(&op->dst, op->bytes, &next->src, next->bytes) ||
           meet(&op->src, op->bytes, &next->dst, next->bytes);
}

/* Whether it can make a difference if queued work of other streams runs before the head of `s`, and
 * not after it. */
static bool meets_others(const soft_stream *s) {
    for (const soft_stream *t = ashlar__soft_state.first_stream; t != NULL; t = t->next) {
        for (const soft_op *op = t != s ? t->head : NULL; op != NULL; op = op->next) {
            if (op->awaits != NULL && !op->awaits->is_done && op->awaits->stream == s) {
                break; /* it has to run after the head of `s` */
            }
            if (is_order_seen(s->head, op) || is_order_seen(op, s->head)) {
                return true;
            }
        }
    }
    return false;
}

static bool is_legacy(const soft_stream *s) {
    return s == s->device->legacy;
}

/*
 * Which streams the chooser may name. The first of these that leaves a stream holds. Of all orders
 * that nobody can tell apart, at least one remains:
 *   ONLY_NEEDED  work that this wait needs, and whose order with all other queued work makes no
 *                difference, runs first, without asking;
 *   OLDER_FIRST  if two ops of different streams run one after the other, and their order makes no
 *                difference, that of the older stream runs first;
 *   ALL_READY    every stream whose head may run.
 */
typedef enum offer { ALL_READY, OLDER_FIRST, ONLY_NEEDED } offer;

static bool is_offered(const soft_stream *s, offer kind) {
    if (!ashlar__soft_is_ready(s)) {
        return false;
    }
    if (kind == ONLY_NEEDED) {
        return s->head->number <= s->wanted && !is_legacy(s) && !meets_others(s);
    }
    return kind == ALL_READY || last.op.number == 0 || s->serial >= last.serial || last.is_legacy ||
           is_legacy(s) || is_order_seen(&last.op, s->head);
}

static size_t count_offered(offer kind) {
    size_t count = 0;
    for (const soft_stream *s = ashlar__soft_state.first_stream; s != NULL; s = s->next) {
        count += is_offered(s, kind);
    }
    return count;
}

/* ---- the hooks ---- */

static void begin_wait(void) {
    last.op.number = 0;
}

static bool is_done(void) {
    return chooser(2) == 1;
}

static soft_stream *pick(void) {
    offer kind = ONLY_NEEDED;
    size_t count = count_offered(kind);
    while (count == 0 && kind != ALL_READY) {
        count = count_offered(--kind);
    }
    if (count == 0) {
        return NULL;
    }
    size_t way = kind != ONLY_NEEDED && count > 1 ? chooser(count) : 0;
    soft_stream *s = ashlar__soft_state.first_stream;
    while (!is_offered(s, kind) || way-- > 0) {
        s = s->next;
    }
    last.op = *s->head;
    last.serial = s->serial;
    last.is_legacy = is_legacy(s);
    return s;
}

void ashlar__soft_choose_by(soft_chooser *by) {
    ashlar__lock_acquire(&ashlar__soft_state.lock);
    chooser = by;
    ashlar__soft_hooks.begin_wait = by != NULL ? begin_wait : NULL;
    ashlar__soft_hooks.pick = by != NULL ? pick : NULL;
    ashlar__soft_hooks.is_done = by != NULL ? is_done : NULL;
    ashlar__lock_release(&ashlar__soft_state.lock);
}
