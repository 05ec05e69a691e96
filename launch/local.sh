#!/usr/bin/env bash
# Runs renai on N ranks of this machine: launch/local.sh N [COMMAND] [OPTION...], e.g. launch/local.sh 2 train --epochs 3
# RENAI names another binary than build/renai.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
if [ $# -lt 1 ] || ! [[ $1 =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: launch/local.sh N [COMMAND] [OPTION...]   (N: number of ranks)" >&2
  exit 2
fi
ranks=$1
shift
renai=${RENAI:-$top/build/renai}
if ! [ -x "$renai" ]; then
  echo "launch/local.sh: $renai is missing; run ./launch/quickstart.sh once, or build with" >&2
  echo "  cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release && cmake --build build" >&2
  exit 4
fi
# Not pinned: by default Open MPI would put all threads of one or two ranks on a core each.
options=(-np "$ranks" --bind-to none)
# Open MPI refuses to run as root unless told that this is meant (containers), and counts cores as its slots.
if [ "$(id -u)" -eq 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
if [ "$(nproc)" -lt "$ranks" ]; then
  options+=(--oversubscribe)
fi
exec mpirun "${options[@]}" "$renai" "$@"
