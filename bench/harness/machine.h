/* machine.h - the machine and versions of a measurement, as a JSON file beside the raw results
 * (internal). */
#ifndef ASHLAR_MACHINE_H
#define ASHLAR_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

#include <ashlar/device.h>

enum { ASHLAR_MACHINE_TEXT_BYTES = 256 };

/* Another library that is measured, and the version that this build uses. */
typedef struct ashlar_machine_part {
    const char *name;
    const char *version;
} ashlar_machine_part;

typedef struct ashlar_machine_config {
    const char *date;   /* NULL: today, in UTC */
    const char *commit; /* NULL: not known, and left out */
    bool is_smoke;
    const ashlar_machine_part *parts;
    size_t part_count;
} ashlar_machine_config;

/*
 * Write {date, commit, smoke, processor, cores, memory_gib, system, compiler, glibc, device,
 * device_gib, driver, products, and each part's version under its name}. Unknown values are left
 * out. The machine's name and file paths are left out on purpose, since results are published.
 *
 * Errors: ASHLAR_EIO, ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__machine_write(const ashlar_machine_config *config,
                                                      const ashlar_device *device,
                                                      const char *path);

/* The processor's name from /proc/cpuinfo, or "unknown". */
void ashlar__machine_processor(char name[static ASHLAR_MACHINE_TEXT_BYTES]);

/* Bytes of this process's memory that belongs to no file, after malloc() has given back its free
 * memory. A software device's memory belongs to a file. NaN: not known. */
double ashlar__machine_host_bytes(void);

#endif /* ASHLAR_MACHINE_H */
