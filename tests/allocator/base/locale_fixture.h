/*
 * locale_fixture.h - a locale with a decimal comma, which the test makes, as few machines have one.
 */
#ifndef ASHLAR_LOCALE_FIXTURE_H
#define ASHLAR_LOCALE_FIXTURE_H

#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* End it with leave_comma_locale(). False: this machine has no localedef(1). */
static inline bool enter_comma_locale(void) {
    static const char source[] = "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \".\"\n"
                                 "grouping 3\nEND LC_NUMERIC\n";
    char folder[] = "/tmp/ashlar-locale-XXXXXX", command[256];
    if (mkdtemp(folder) == NULL) {
        return false;
    }
    /* Its status says nothing: it is 1 because some categories are not defined. */
    (void)snprintf(command, sizeof command,
                   "cat >%s/comma.src && localedef -c -i %s/comma.src %s/comma >%s/log 2>&1",
                   folder, folder, folder, folder);
    FILE *pipe = popen(command, "w");
    if (pipe != NULL) {
        (void)fputs(source, pipe);
        (void)pclose(pipe);
    }
    (void)setenv("LOCPATH", folder, 1);
    const bool is_set = setlocale(LC_NUMERIC, "comma") != NULL;
    (void)unsetenv("LOCPATH");
    (void)snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) == 0 && is_set;
}

static inline void leave_comma_locale(void) {
    (void)setlocale(LC_NUMERIC, "C");
}

#endif /* ASHLAR_LOCALE_FIXTURE_H */
