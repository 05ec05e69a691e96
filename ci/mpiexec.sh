#!/usr/bin/env bash
# Starts a program on N ranks of this machine: ci/mpiexec.sh N PROGRAM [ARGUMENT...].
# Allows root (containers) and more ranks than cores; ranks are not bound, so jobs of a test run can share the cores.
set -euo pipefail
ranks=$1
shift
if [ "$(id -u)" -eq 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
exec mpirun --oversubscribe --bind-to none -np "$ranks" "$@"
