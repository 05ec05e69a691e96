#!/usr/bin/env bash
# The whole GPU suite, on however many GPUs are here, in under ten minutes:
#   tests/device/run.sh [--only WORDS] [--list] [BUILD_FOLDER]
# BUILD_FOLDER  default build; it may come from another machine: test executables are run directly, with libraries from
#               its lib/, programs (mpirun) from its bin/ and the commit from its file COMMIT, where it has them
# --only WORDS  only steps whose name holds one of the words (separated by spaces or commas)
# --list        prints the names of the steps
# Prints one line a step and what failed; the log, with everything the steps printed, is $OUT/device.log, or device.log
# in the build folder. The last line is the total "N passed, N failed, N skipped", counted in tests; the exit status is
# non-zero when anything failed. RENAI_FULL=1 runs the full step counts and the accuracy test (longer than ten minutes),
# RENAI_SUITE_DEVICE=cpu tries the scripted tests on the CPU, RENAI_SUITE_SECONDS changes the limit of the whole
# (default 570, full 3000), RENAI_SUITE_SHARED=1 lets ranks share a GPU where there are too few.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
only=""
list=0
build=""
while [ $# -gt 0 ]; do
  case $1 in
    --only) only=${2:?--only needs words}; shift 2 ;;
    --list) list=1; shift ;;
    -*) sed -n '2,13s/^# \?//p' "${BASH_SOURCE[0]}"; exit 2 ;;
    *) build=$1; shift ;;
  esac
done
cd "$root" || exit 70
folder=${build:-build}
build=$(cd "$folder" 2>/dev/null && pwd) || { echo "run.sh: there is no build folder '$folder'" >&2; exit 2; }
full=${RENAI_FULL:-0}
limit=${RENAI_SUITE_SECONDS:-$([ "$full" = 1 ] && echo 3000 || echo 570)}
device=${RENAI_SUITE_DEVICE:-cuda}

# Where programs and libraries are.
path=""
if packages=$(python3 -c "import nvidia; print(list(nvidia.__path__)[0])" 2>/dev/null); then
  path=$packages/cudnn/lib:$packages/nccl/lib:$packages/cu13/lib
fi
[ -d "$build/lib" ] && path=$build/lib${path:+:$path}
[ -n "$path" ] && export LD_LIBRARY_PATH=$path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
[ -d "$build/bin" ] && export PATH=$build/bin:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export NCCL_NVLS_ENABLE=0 XDG_CACHE_HOME=$work/cache PYTHONUNBUFFERED=1 GTEST_COLOR=no
export RENAI=$build/renai RENAI_CASES_DIR=$root/tests/cases RENAI_GOLDEN=$root/tests/golden
[ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

gpus=0
if [ "$device" = cuda ] && command -v nvidia-smi >/dev/null; then
  gpus=$(PYTHONPATH=$root/tests/support python3 -c 'import device_cli; print(len(device_cli.GPUS))') || gpus=0
fi
[ -n "$gpus" ] || gpus=0

log=${OUT:-$build}/device.log
if [ $list = 1 ]; then log=/dev/null; fi
: >"$log" || exit 4
passed=0
failed=0
skipped=0
failures=()

say() { if [ $list = 0 ]; then printf '%s\n' "$*" | tee -a "$log"; fi; }

commit() {
  if [ -f "$build/COMMIT" ]; then
    cat "$build/COMMIT"
  elif git -C "$root" rev-parse HEAD 2>/dev/null; then
    [ -z "$(git -C "$root" status --porcelain 2>/dev/null)" ] || echo "(with changes)"
  else
    echo unknown
  fi
}

versions() {
  python3 - <<'PYTHON'
import ctypes


def ask(library, function, by_value=False):
    try:
        call = getattr(ctypes.CDLL(library), function)
    except (OSError, AttributeError):
        return "not found"
    if by_value:
        call.restype = ctypes.c_size_t
        return str(call())
    value = ctypes.c_int()
    return str(value.value) if call(ctypes.byref(value)) == 0 else "no answer"


print("CUDA runtime", ask("libcudart.so.13", "cudaRuntimeGetVersion") + ", driver's CUDA",
      ask("libcuda.so.1", "cuDriverGetVersion") + ", cuDNN", ask("libcudnn.so.9", "cudnnGetVersion", True) +
      ", cuBLASLt", ask("libcublasLt.so.13", "cublasLtGetVersion", True) + ", NCCL",
      ask("libnccl.so.2", "ncclGetVersion"))
PYTHON
}

wanted() {
  local word
  [ -n "$only" ] || return 0
  for word in ${only//,/ }; do case $1 in *"$word"*) return 0 ;; esac; done
  return 1
}

# count FILE: "passed failed skipped" from what GoogleTest's programs or unittest printed; nothing when neither did.
count() {
  awk '
    /^\[  PASSED  \] [0-9]+ test/ { p += $4; seen = 1 }
    /^\[  SKIPPED \] [0-9]+ test/ { s += $4 }
    /^\[  FAILED  \] [0-9]+ test/ { f += $4; seen = 1 }
    /^Ran [0-9]+ tests? in/ { ran = $2; unit = 1 }
    /^(OK|FAILED)( \(|$)/ && unit {
      line = $0; seen = 1
      while (match(line, /(failures|errors|skipped)=[0-9]+/)) {
        split(substr(line, RSTART, RLENGTH), pair, "="); n[pair[1]] = pair[2]; line = substr(line, RSTART + RLENGTH)
      }
    }
    END {
      if (unit) { f = n["failures"] + n["errors"]; s = n["skipped"]; p = ran - f - s; if (p < 0) p = 0 }
      if (seen) print p + 0, f + 0, s + 0
    }' "$1"
}

# begin NAME SECONDS COMMAND...: runs a step in the background, its output and status in files.
begin() {
  local name=$1 seconds=$2 left=$((limit - SECONDS))
  shift 2
  [ "$left" -ge "$seconds" ] || seconds=$left
  [ "$seconds" -ge 1 ] || seconds=1
  (
    start=$SECONDS
    timeout -k 10 "$seconds" "$@" >"$work/$name.out" 2>&1
    echo "$? $((SECONDS - start)) $seconds" >"$work/$name.end"
  ) </dev/null &
}

# finish NAME: the line of a step that has ended, its counts, its output.
finish() {
  local name=$1 status seconds allowed p=0 f=0 s=0 word=ok note=""
  read -r status seconds allowed <"$work/$name.end"
  read -r p f s <<<"$(count "$work/$name.out")"
  p=${p:-0} f=${f:-0} s=${s:-0}
  if [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then note=" (stopped after $allowed s)"; fi
  if [ "$status" -ne 0 ] && [ "$status" -ne 77 ]; then
    word=FAILED
    [ "$f" -gt 0 ] || f=1
    [ -n "$note" ] || note=" (status $status)"
  elif [ "$p" -eq 0 ] && { [ "$s" -gt 0 ] || [ "$status" -eq 77 ]; }; then
    word=skipped
    [ "$s" -gt 0 ] || s=1
    note=" ($(grep -aoE "no GPU.*|skipped '[^']*'|skipped: .*" "$work/$name.out" | head -n 1))"
  elif [ "$p" -eq 0 ]; then
    p=1
  fi
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  { printf '\n---- %s\n' "$name"; tail -c 200000 "$work/$name.out"; } >>"$log"
  if [ "$word" = FAILED ]; then
    failures+=("$name")
    if grep -aqE "^(FAIL|ERROR): " "$work/$name.out"; then
      sed -n '/^======/,$p' "$work/$name.out" | tail -n 80
    else
      tail -n 60 "$work/$name.out"
    fi
  fi
  say "$(printf '%-8s%s (%s s): %s passed, %s failed, %s skipped%s' \
    "$word" "$name" "$seconds" "$p" "$f" "$s" "$note")"
}

# step NAME SECONDS COMMAND...: one check from begin to finish.
step() {
  wanted "$1" || return 0
  if [ $list = 1 ]; then echo "$1"; return; fi
  begin "$@"
  wait $!
  finish "$1"
}

# skip NAME REASON
skip() {
  wanted "$1" || return 0
  if [ $list = 1 ]; then echo "$1"; return; fi
  skipped=$((skipped + 1))
  say "skipped $1: $2"
}

# side NAME SECONDS COMMAND...: a step beside the next ones, until `join_sides`.
sides=()
side_jobs=()
side() {
  wanted "$1" || return 0
  if [ $list = 1 ]; then echo "$1"; return; fi
  begin "$@"
  side_jobs+=($!)
  sides+=("$1")
}
join_sides() {
  local name
  for name in "${side_jobs[@]:+${side_jobs[@]}}"; do wait "$name"; done
  for name in "${sides[@]:+${sides[@]}}"; do finish "$name"; done
  sides=() side_jobs=()
}

# The CUDA leaves must be there: with them off every step would skip.
check_build() {
  [ -x "$RENAI" ] || { echo "$RENAI is missing"; return 1; }
  local text
  text=$("$RENAI" --version) || return 1
  echo "$text"
  mkdir -p "$work/check"
  "$RENAI" pack synthetic --out "$work/check/data" --train 64 --val 16 >/dev/null || return 1
  "$RENAI" train --data "$work/check/data" --run-dir "$work/check/run" --model cnn-small --global-batch 16 --steps 2 \
    --device "$device"
}

# of_mpi FILE: whether an executable starts MPI.
of_mpi() { grep -aq MPI_Init "$1"; }
is_gtest() { grep -aq gtest_list_tests "$1"; }

# sampled TOOL TESTS FILTER EXECUTABLE...: a compute-sanitizer tool over about so many tests of each, spread evenly.
sampled() {
  local tool=$1 most=$2 filter=$3 file all shards worst=0
  shift 3
  if ! command -v compute-sanitizer >/dev/null; then echo "skipped: compute-sanitizer is not installed"; return 77; fi
  for file in "$@"; do
    all=$("$file" --gtest_list_tests --gtest_filter="$filter" | grep -c '^  ')
    if [ "$all" -eq 0 ]; then echo "no test of $file matches $filter"; return 1; fi
    shards=$(((all + most - 1) / most))
    echo "$tool of $file, every ${shards}th of $all tests"
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=0 compute-sanitizer --tool "$tool" --error-exitcode 9 \
      --print-limit 20 "$file" --gtest_filter="$filter" 2>&1 | tee "$work/$tool.out"
    local status=${PIPESTATUS[0]}
    if grep -aq "Device not supported" "$work/$tool.out"; then
      echo "skipped: compute-sanitizer refuses this device"
      return 77
    fi
    [ "$status" -eq 0 ] || worst=$status
  done
  return "$worst"
}
export work
export -f sampled check_build
export device

say "commit $(commit | tr '\n' ' ')"
say "$(date -u +%FT%TZ) on $(uname -n), $(nproc) cores, suite on $device, build $build"
if [ "$gpus" -gt 0 ] && [ $list = 0 ]; then
  say "$(nvidia-smi --query-gpu=index,name,uuid,driver_version,memory.total --format=csv,noheader)"
  say "$(versions)"
fi
say "$gpus GPU(s) used"

if [ "$gpus" -eq 0 ] && [ "$device" = cuda ]; then
  skip build "no GPU here"
else
  step build 60 bash -c check_build
fi

kernel_tests=()
for file in "$build"/tests/device/*; do
  [ -f "$file" ] && [ -x "$file" ] && is_gtest "$file" || continue
  name=$(basename "$file")
  if [ "$gpus" -eq 0 ]; then skip "$name" "no GPU here"; continue; fi
  if of_mpi "$file"; then
    step "$name.np1" 120 "$root/ci/mpiexec.sh" 1 "$file"
    for ranks in 2 4; do
      if [ "$gpus" -ge "$ranks" ]; then
        step "$name.np$ranks" 120 "$root/ci/mpiexec.sh" "$ranks" "$file"
      else
        skip "$name.np$ranks" "$gpus GPU(s) here, $ranks needed"
      fi
    done
  else
    step "$name" 120 "$file"
    case $name in *kernel*) kernel_tests+=("$file") ;; esac
  fi
done
parity=$build/tests/parity/parity_cuda
for precision in fp32 tf32 bf16 fp16; do
  filter='*'
  [ $precision = fp32 ] || filter='Cases/OperatorParity.*'
  if [ "$gpus" -eq 0 ]; then
    skip "parity.$precision" "no GPU here"
  else
    step "parity.$precision" 120 env RENAI_TEST_PRECISION=$precision "$parity" --gtest_filter="$filter"
  fi
done

for golden in golden_cuda golden_mix_cuda golden_ema_cuda golden_zoo_cuda; do
  if [ "$gpus" -eq 0 ]; then
    skip "$golden" "no GPU here"
  else
    # Networks of 140 million parameters are filled and copied.
    step "$golden" "$([ $golden = golden_zoo_cuda ] && echo 240 || echo 120)" "$build/tests/golden/$golden"
  fi
done

# The sanitizers are slow and need no quiet machine: beside the identity test, which measures nothing.
if [ "$gpus" -eq 0 ]; then
  skip sanitizers "no GPU here"
else
  if [ ${#kernel_tests[@]} -gt 0 ]; then
    side memcheck.kernels 150 bash -c 'sampled memcheck 8 "-*Large*" "$@"' sampled "${kernel_tests[@]}"
    side racecheck.kernels 150 bash -c 'sampled racecheck 5 "-*Large*" "$@"' sampled "${kernel_tests[@]}"
  fi
  if [ -x "$parity" ]; then
    side memcheck.parity 120 env RENAI_TEST_PRECISION=bf16 \
      bash -c 'sampled memcheck 12 "Cases/OperatorParity.*" "$@"' sampled "$parity"
  fi
fi

scripts=(identity leaves placement capture photographs faults comm)
[ "$full" = 1 ] && scripts+=(accuracy)
for name in "${scripts[@]}"; do
  step "$name" "$([ "$full" = 1 ] && echo 1200 || echo 240)" python3 "$root/tests/device/${name}_test.py"
  [ "$name" != identity ] || join_sides
done
join_sides

[ $list = 0 ] || exit 0
say "$SECONDS s in all, log $log"
for name in "${failures[@]:+${failures[@]}}"; do say "failed: $name"; done
say "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
