/* soft_trace.c - a file of what streams and threads did when, in virtual time (trace=FILE). */
#include "allocator/soft/soft.h"
#include "allocator/soft/soft_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/error.h"

/* An array of events in Chrome's trace format, with the categories of PyTorch's profiler, so that
 * one reader serves both. Its end is written behind each event and over again, so that the file is
 * whole at any time. Lock: the state's, which this file does not name, to call nothing above it. */
static struct {
    atomic_int fd; /* -1: none; also read without the lock */
    off_t at; /* where the next event goes; 0: the file has none yet */
} file = {.fd = -1};

static void use(int fd) {
    if (file.fd >= 0) {
        (void)close(file.fd); /* what could not be written has ended the trace */
    }
    file.fd = fd;
    file.at = 0;
}

bool ashlar__soft_is_traced(void) {
    return atomic_load_explicit(&file.fd, memory_order_relaxed) >= 0;
}

ashlar_status ashlar__soft_trace_open(const char *path) {
    const bool is_wanted = path[0] != '\0';
    const int fd = is_wanted ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
    ASHLAR_FAIL_IF(is_wanted && fd < 0, ASHLAR_EIO, "ASHLAR_SOFT: trace=%s: %s", path,
                   strerror(errno));
    use(fd);
    return ASHLAR_OK;
}

void ashlar__soft_trace_put(const char *format, ...) {
    char text[512]; /* names are short */
    va_list args;
    if (file.fd < 0) {
        return;
    }
    const int begin = snprintf(text, sizeof text, "%s\n", file.at == 0 ? "[" : ",");
    va_start(args, format);
    const int bytes = begin + vsnprintf(text + begin, sizeof text - (size_t)begin, format, args);
    va_end(args);
    ASHLAR_CHECK2(bytes > begin && (size_t)bytes + 2 < sizeof text);
    memcpy(text + bytes, "\n]", 2);
    file.at += bytes;
    if (pwrite(file.fd, text, (size_t)bytes + 2, file.at - bytes) != bytes + 2) {
        use(-1); /* what cannot be written ends the trace: time goes on without */
    }
}

/* As PyTorch's profiler names them. */
static const char *copy_name(const soft_op *op) {
    const bool from = op->src.place == SOFT_PLACE_DEVICE, to = op->dst.place == SOFT_PLACE_DEVICE;
    return from && to ? (op->src.device == op->dst.device ? "Memcpy DtoD" : "Memcpy PtoP")
           : to       ? "Memcpy HtoD"
                      : "Memcpy DtoH";
}

void ashlar__soft_trace_work(const soft_stream *stream, const soft_op *op, uint64_t begin_ns) {
    static const struct {
        const char *category, *name;
    } kinds[] = {[SOFT_OP_HOST_FN] = {"kernel", "host function"},
                 [SOFT_OP_COPY] = {"gpu_memcpy", NULL},
                 [SOFT_OP_FILL] = {"gpu_memset", "Memset"},
                 [SOFT_OP_WORK] = {"kernel", "work"},
                 [SOFT_OP_WAIT] = {"cuda_sync", "Stream Wait Event"}};
    const char *name = op->name != NULL           ? op->name
                       : op->kind == SOFT_OP_COPY ? copy_name(op)
                                                  : kinds[op->kind].name;
    const unsigned long long id = stream->serial;
    ashlar__soft_trace_put(
        "{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%d,\"tid\":%llu,\"ts\":" SOFT_US ","
        "\"dur\":" SOFT_US ",\"args\":{\"stream\":%llu,\"bytes\":%zu}}",
        kinds[op->kind].category, name, stream->device->ordinal, id, SOFT_US_OF(begin_ns),
        SOFT_US_OF(stream->tail_ns - begin_ns), id, op->bytes);
}

void ashlar__soft_trace_call(ashlar_driver_fn fn, uint64_t begin_ns, uint64_t end_ns) {
    const ashlar_driver_kind kind =
        fn < ASHLAR_DRIVER_FN_COUNT ? ashlar__driver_fn_kind(fn) : ASHLAR_DRIVER_QUERY;
    if (kind == ASHLAR_DRIVER_WORK || kind == ASHLAR_DRIVER_MEMORY || kind == ASHLAR_DRIVER_WAIT) {
        ashlar__soft_trace_put(
            "{\"ph\":\"X\",\"cat\":\"cuda_driver\",\"name\":\"%s\",\"pid\":%d,\"tid\":%u,"
            "\"ts\":" SOFT_US ",\"dur\":" SOFT_US "}",
            ashlar__driver_fn_name(fn), (int)getpid(), (unsigned)ashlar__thread_number(),
            SOFT_US_OF(begin_ns), SOFT_US_OF(end_ns - begin_ns));
    }
}
