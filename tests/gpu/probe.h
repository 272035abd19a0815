/*
 * probe.h - the program that asks a driver itself, without an allocator: what it is, whether it
 * keeps the rules that ashlar relies on, and what its calls cost; and how fast the optimizer's
 * kernels are beside its copies, and cuBLAS's products in fp32.
 */
#ifndef ASHLAR_TESTS_PROBE_H
#define ASHLAR_TESTS_PROBE_H

#include <stdbool.h>
#include <stddef.h>

#include "allocator/driver/driver.h"

typedef struct probe {
    const ashlar_driver_table *cuda;
    cu_device device;
    size_t granularity; /* what a handle's size is a multiple of */
} probe;

/* Open device 0 and make its context the thread's. False: a line has said why not. */
bool probe_open(probe *out);

/* Whether the byte at `ptr` has that value; waits for all work. */
bool probe_holds(const probe *p, cu_ptr ptr, unsigned char value);

/* Fill `ptr` so often that a call made now finds the stream at work; its last value is
 * PROBE_FILLS - 1. */
enum { PROBE_FILLS = 200 };
void probe_keep_busy(const probe *p, cu_stream stream, cu_ptr ptr, size_t bytes);

/* ---- memory ---- */

/* Memory of `bytes` as the library asks for it, mapped for reading and writing. On failure nothing
 * is left. probe_unmap() gives all of it back. */
cu_result probe_map(const probe *p, size_t bytes, cu_ptr *ptr);
void probe_unmap(const probe *p, cu_ptr ptr, size_t bytes);

/* How memory of the device is described to cuMemCreate and cuMemSetAccess. */
cu_mem_prop probe_prop(const probe *p);
cu_mem_access probe_access(const probe *p);

/* ---- what is asked ---- */

/* Each prints what it finds, and ends with a line about all of it. The value is an exit status. */
int probe_facts(const probe *p);
int probe_rules(void); /* in children, which open the driver for themselves */
int probe_costs(const probe *p, bool is_smoke, const char *json);

/* The host's time of one call of each kind that is no call for memory: `tell` gets the name, the
 * bytes that it is about, and the ns of one call in each round, [rounds]. */
typedef void probe_teller(void *to, const char *call, size_t bytes, double *ns);
bool probe_costs_calls(const probe *p, size_t rounds, bool is_smoke, probe_teller *tell, void *to);

int probe_products(const probe *p, bool is_smoke, const char *json);
int probe_updates(bool is_smoke, const char *json); /* by the library, which opens the device */

#endif /* ASHLAR_TESTS_PROBE_H */
