#!/usr/bin/env bash
# Starts a program on N ranks: ci/mpiexec.sh N PROGRAM [ARGUMENT...]. Allows root (containers) and more ranks than cores.
set -euo pipefail
if [ "$(id -u)" -eq 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
ranks=$1
shift
exec mpirun --oversubscribe -np "$ranks" "$@"
