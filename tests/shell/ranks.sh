# ranks.sh - what tests of several processes have in common: launchers, and the comparison of what
# was trained. Sourced after tap.sh, never run.
# shellcheck shell=sh

: "${ASHLAR_MPIS:=-openmpi -mpich}"
# As root, on fewer cores than ranks, and without keeping them busy while they wait.
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_plm_rsh_agent=false
PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe \
    OMPI_MCA_mpi_yield_when_idle OMPI_MCA_hwloc_base_binding_policy OMPI_MCA_plm_rsh_agent \
    PRTE_MCA_rmaps_default_mapping_policy

# The launcher of an MPI, by the names that Debian gives them.
launcher_of() { # -openmpi | -mpich
    for launcher in "mpirun.${1#-}" mpirun; do
        command -v "$launcher" >/dev/null && return
    done
    return 1
}

start() { # RANKS PROGRAM ARGUMENT...
    ranks=$1
    shift
    timeout -k 10 120 "$launcher" -n "$ranks" "$@" </dev/null
}

# The trained weights in two checkpoints differ by 1e-5 at most.
are_near() { # FILE FILE
    python3 - "$1" "$2" <<'END'
import array, json, struct, sys

def weights(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    found = {}
    for name, tensor in header.items():
        if name != "__metadata__" and not name.startswith("optimizer"):
            found[name] = array.array("f", data[slice(*tensor["data_offsets"])])
    return found

one, two = weights(sys.argv[1]), weights(sys.argv[2])
worst = max(abs(a - b) for name in one for a, b in zip(one[name], two[name], strict=True))
print(len(one), "tensors, the largest difference is", worst)
sys.exit(not (one and one.keys() == two.keys() and worst <= 1e-5))
END
}
