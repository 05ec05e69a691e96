#!/usr/bin/env bash
# Exit codes and limits of every way in which a run ends: ending_test.sh MPIEXEC PROBE
set -uo pipefail
mpiexec=$1 probe=$2 failures=0

check() {  # check CASE RANKS EXPECTED_CODE SECONDS [TEXT]: the text stands in the output
  local start=$SECONDS code=0
  timeout 30 "$mpiexec" "$2" "$probe" "$1" >/tmp/ending_probe.$$ 2>&1 || code=$?
  local took=$((SECONDS - start))
  if [ "$code" -ne "$3" ] || [ "$took" -gt "$4" ]; then
    echo "case $1 on $2 ranks: exit code $code after $took s, expected $3 within $4 s"
    cat /tmp/ending_probe.$$
    failures=$((failures + 1))
  fi
  if [ -n "${5-}" ] && ! grep -qF "$5" /tmp/ending_probe.$$; then
    echo "case $1 on $2 ranks: no line says '$5'"
    cat /tmp/ending_probe.$$
    failures=$((failures + 1))
  fi
  rm -f /tmp/ending_probe.$$
}

check ends-well 4 0 10
check fails 4 3 10         # The failing rank's own code, not that of the ranks that hear of it.
check silent 4 6 10        # A stopped rank: its peers end the job.
check unwinds 2 2 10       # An exception past the session does not hang in MPI's end.
check stops-at-end 2 6 10  # Nor does a rank that stops between its last work and MPI's end.
check stops-at-start 4 6 10 "rank 0 did not get through MPI_Init within the watchdog time"
check stops-in-finalize 2 6 10 "rank 0 did not get through MPI_Finalize within the watchdog time"
exit $((failures > 0))
