# calls.awk - what the longer of two trainings called more often than the shorter one did, from lines
# "NAME COUNT" (calls.c): a table, and in the file `json` a row for each function, {"call",
# "subject", "more", "each_step"}. The status is 1 where one is for memory, or makes or ends something; steps: how many
# there were more.

FNR == 1 { file++ }
file == 1 { before[$1] = $2 }
file == 2 { after[$1] = $2 }

END {
    memory = "^cuMem(Alloc|Free|Create|Release|Map|Unmap|SetAccess|Address|Host|Pool|Import|Export)"
    lasting = "^cu(Stream|Event|Ctx|Graph|GraphExec|Library|Module)(Create|Destroy|Load|Unload)"
    for (name in before) {
        if (!(name in after)) {
            after[name] = 0
        }
    }
    printf "[" >json
    for (name in after) {
        more = after[name] - before[name]
        if (more == 0) {
            continue
        }
        printf "%s\n  {\"call\": \"%s\", \"subject\": \"training\", \"more\": %d, \"each_step\": %.4f}", rows++ ? "," : "", \
            name, more, more / steps >json
        printf "%-36s %10d  %10.2f a step\n", name, more, more / steps
        if (name ~ memory || name ~ lasting) {
            wrong += more > 0 ? more : -more
            which = which " " name
        }
        all += more
    }
    printf "\n]\n" >json
    if (all <= 0) {
        print "no calls were counted in those steps"
        exit 1
    }
    printf "%d calls for memory, streams or events in %d steps (%.1f calls a step)%s\n", wrong, \
        steps, all / steps, which ? ":" which : ""
    exit wrong > 0
}
