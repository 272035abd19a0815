/*
 * device_program.h - programs of a few calls on two streams: which there are, and as text.
 *
 * The calls, with a block B (in the order of the allocations) and a stream S, 0 or 1:
 *   A S    allocate for S; S writes the block
 *   F B    its stream reads the block; ashlar_free()
 *   O B:S  S waits for its stream and reads it; ashlar_free_on(S), not the block's own stream
 *   L B:S  S waits for its stream; ashlar_record_stream(S); S reads the block
 *   W S    S waits in-stream for the other stream
 *   Y S    the host waits for S
 *   D S    S reads its live blocks; ashlar_stream_destroy(). The next call that names S makes it.
 *
 * Left out, for a shorter program or another name of the streams is the same: programs that name
 * stream 1 first, and those whose last call is W or Y.
 */
#ifndef ASHLAR_DEVICE_PROGRAM_H
#define ASHLAR_DEVICE_PROGRAM_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum {
    STREAMS = 2,
    BLOCKS = 3,
    LENGTH_MAX = 8,
    CALLS_MAX = 24, /* that may come next */
};

typedef struct call {
    char kind;
    int block, stream; /* where the kind has them */
} call;

typedef struct program {
    call calls[LENGTH_MAX];
    size_t length;
} program;

/* What is known of a program without running it. */
typedef struct sketch {
    int block_count;
    struct {
        int home;         /* stream; -1: freed */
        bool is_stranded; /* its stream is destroyed */
        bool is_lent;
    } blocks[BLOCKS];
    bool has_stream[STREAMS];
} sketch;

static inline void sketch_add(sketch *s, call c) {
    if (c.kind == 'A') {
        s->blocks[s->block_count].home = c.stream;
        s->blocks[s->block_count].is_stranded = s->blocks[s->block_count].is_lent = false;
        s->block_count++;
    } else if (c.kind == 'F' || c.kind == 'O') {
        s->blocks[c.block].home = -1;
    } else if (c.kind == 'L') {
        s->blocks[c.block].is_lent = true;
    }
    if (c.kind != 'F') {
        s->has_stream[c.stream] = c.kind != 'D';
    }
    for (int i = 0; c.kind == 'D' && i < s->block_count; i++) {
        s->blocks[i].is_stranded |= s->blocks[i].home == c.stream;
    }
}

static inline size_t calls_after(const sketch *s, call out[static CALLS_MAX]) {
    size_t count = 0;
    for (int stream = 0; stream < STREAMS; stream++) {
        if (s->block_count < BLOCKS && (stream == 0 || s->block_count > 0)) {
            out[count++] = (call){'A', 0, stream};
        }
        if (s->has_stream[stream]) {
            out[count++] = (call){'Y', 0, stream};
            out[count++] = (call){'D', 0, stream};
        }
        if (s->has_stream[0] && s->has_stream[1]) {
            out[count++] = (call){'W', 0, stream};
        }
    }
    for (int i = 0; i < s->block_count; i++) {
        const int home = s->blocks[i].home;
        if (home >= 0) {
            out[count++] = (call){'F', i, home};
        }
        if (home >= 0 && !s->blocks[i].is_stranded) {
            out[count++] = (call){'O', i, 1 - home};
            if (!s->blocks[i].is_lent) {
                out[count++] = (call){'L', i, 1 - home};
            }
        }
    }
    return count;
}

static inline bool read_program(const char *text, program *out) {
    *out = (program){.length = 0};
    for (int used = 0; *text != '\0' && out->length < LENGTH_MAX; text += used) {
        call *c = &out->calls[out->length++];
        int number = 0;
        if (sscanf(text, " %c%d:%d %n", &c->kind, &c->block, &c->stream, &used) != 3) {
            if (sscanf(text, " %c%d %n", &c->kind, &number, &used) != 2) {
                return false;
            }
            *(c->kind == 'F' ? &c->block : &c->stream) = number;
        }
    }
    return true;
}

static inline void print_program(const program *p) {
    for (size_t i = 0; i < p->length; i++) {
        const call c = p->calls[i];
        printf(c.kind == 'O' || c.kind == 'L' ? "%s%c%d:%d" : "%s%c%d", i > 0 ? " " : "", c.kind,
               strchr("FOL", c.kind) != NULL ? c.block : c.stream, c.stream);
    }
}

/* Whether a program may end so; one that ends otherwise sees no more than the same without it. */
static inline bool may_end_with(call c) {
    return strchr("WY", c.kind) == NULL;
}

#endif /* ASHLAR_DEVICE_PROGRAM_H */
