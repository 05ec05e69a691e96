#!/usr/bin/env bash
# Everything that must hold before a change lands. Installs what is missing, then runs the stages below; the last line is the
# total "N passed, N failed, N skipped", the exit status is non-zero when anything failed.
#   ci/test.sh                    all stages
#   ci/test.sh STAGE...           some of: checks release address thread, or tidy, cuda
# checks   layering, house rules, their self-tests, shell scripts, formatting, headers alone, clang-tidy
# tidy     clang-tidy over all of src/ (long; not one of the default stages)
# release  the optimised build and all tests (build/)
# address  address and undefined-behaviour sanitizers over unit and distributed tests (build-address/)
# thread   the thread sanitizer over the tests of threaded rooms (build-thread/)
# cuda     renai and the GPU tests with the CUDA leaves, compiled and linked also where no GPU is (build-cuda/; about five
#          minutes on two cores, so not one of the default stages); tests/device/run.sh runs them where there is one
set -uo pipefail
cd "$(dirname "$0")/.." || exit 70
if [ -x /usr/bin/python3 ]; then python=/usr/bin/python3; else python=python3; fi
stages=("$@")
[ ${#stages[@]} -gt 0 ] || stages=(checks release address thread)
# Never fewer than two: tests of ranks and threads run side by side anyway.
jobs=$(nproc)
[ "$jobs" -ge 2 ] || jobs=2

passed=0
failed=0
skipped=0
failures=()
log=$(mktemp)
junit=$(mktemp)
trap 'rm -f "$log" "$junit"' EXIT

finish() {
  local name
  for name in "${failures[@]:+${failures[@]}}"; do echo "failed: $name"; done
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ]
  exit
}

# step NAME COMMAND...: one check; its output is shown when it fails.
step() {
  local name=$1 start=$SECONDS
  shift
  if "$@" >"$log" 2>&1; then
    passed=$((passed + 1))
    echo "ok      $name ($((SECONDS - start)) s)"
    return 0
  fi
  failed=$((failed + 1))
  failures+=("$name")
  cat "$log"
  echo "FAILED  $name ($((SECONDS - start)) s)"
  return 1
}

# run_tests NAME FOLDER [CTEST ARGUMENT...]: adds CTest's counts to the totals.
run_tests() {
  local name=$1 folder=$2 start=$SECONDS counts
  shift 2
  echo "running $name"
  ctest --test-dir "$folder" -j "$jobs" --output-on-failure --no-tests=error --output-junit "$junit" "$@" >"$log" 2>&1
  local status=$?
  if [ $status -ne 0 ]; then cat "$log"; else tail -n 25 "$log"; fi
  if ! counts=$("$python" ci/checks/junit_counts.py "$junit"); then
    failed=$((failed + 1))
    failures+=("$name (no result)")
    return
  fi
  local more_passed more_failed more_skipped
  read -r more_passed more_failed more_skipped <<<"$counts"
  passed=$((passed + more_passed))
  failed=$((failed + more_failed))
  skipped=$((skipped + more_skipped))
  [ "$more_failed" -eq 0 ] || failures+=("$name: $more_failed tests")
  if [ $status -ne 0 ] && [ "$more_failed" -eq 0 ]; then
    failed=$((failed + 1))
    failures+=("$name (ctest status $status)")
  fi
  echo "$name: $((SECONDS - start)) s"
}

configure() {
  local folder=$1
  shift
  cmake -S . -B "$folder" -G Ninja -DRENAI_BUILD_TESTS=ON "$@"
}

format_check() { git ls-files -z '*.hpp' '*.cpp' '*.cu' '*.cuh' | xargs -0 clang-format-14 --dry-run -Werror; }
# clang-tidy reads a file in seconds: here the sources that the last commits changed, 24 at most; "tidy" reads all of them.
tidy_check() {
  local files
  mapfile -t files < <(git log -12 --name-only --pretty=format: --diff-filter=d -- 'src/*.cpp' | awk 'NF && !seen[$0]++' | head -n 24)
  local present=() file
  for file in "${files[@]:+${files[@]}}"; do [ -f "$file" ] && present+=("$file"); done
  [ ${#present[@]} -eq 0 ] || bash ci/checks/tidy.sh build "${present[@]}"
}
shell_check() { git ls-files -z '*.sh' .ci/run | xargs -0 shellcheck -S warning; }

step "dependencies" ci/dependencies.sh --tests --data || finish
for stage in "${stages[@]}"; do
  case $stage in
    checks)
      step "checks catch violations" "$python" ci/checks/self_test.py
      step "layering" "$python" ci/checks/layering.py
      step "house rules" "$python" ci/checks/house_rules.py
      step "shell scripts" shell_check
      step "formatting" format_check
      step "configure build" configure build -DCMAKE_BUILD_TYPE=Release || finish
      step "headers compile alone" cmake --build build --target headers_alone
      step "clang-tidy" tidy_check
      ;;
    tidy)
      step "configure build" configure build -DCMAKE_BUILD_TYPE=Release || finish
      step "clang-tidy over all sources" bash ci/checks/tidy.sh build
      ;;
    release)
      step "configure build" configure build -DCMAKE_BUILD_TYPE=Release || finish
      step "build" cmake --build build || finish
      run_tests "tests" build
      ;;
    address)
      step "configure build-address" configure build-address -DCMAKE_BUILD_TYPE=Release -DRENAI_SANITIZE=address,undefined || finish
      step "build with address and undefined sanitizers" \
        cmake --build build-address --target tests_unit tests_distributed || finish
      export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
      export LSAN_OPTIONS="suppressions=$PWD/ci/sanitizers/leaks.supp:print_suppressions=0"
      export UBSAN_OPTIONS=print_stacktrace=1
      run_tests "address and undefined sanitizers" build-address -L '^(unit|distributed)$'
      ;;
    thread)
      step "configure build-thread" configure build-thread -DCMAKE_BUILD_TYPE=Release -DRENAI_SANITIZE=thread || finish
      step "build with the thread sanitizer" cmake --build build-thread --target tests_threads || finish
      export TSAN_OPTIONS="suppressions=$PWD/ci/sanitizers/threads.supp:halt_on_error=1:second_deadlock_stack=1"
      run_tests "thread sanitizer" build-thread -L '^threads$'
      ;;
    cuda)
      if ! command -v "${CUDACXX:-nvcc}" >/dev/null && ! [ -x /usr/local/cuda/bin/nvcc ]; then
        skipped=$((skipped + 1))
        echo "skipped cuda: nvcc is not installed"
        continue
      fi
      step "dependencies of the CUDA leaves" ci/dependencies.sh --cuda-always build-cuda/python
      step "configure build-cuda" configure build-cuda -DCMAKE_BUILD_TYPE=Release -DRENAI_CUDA=ON || finish
      step "build the CUDA leaves and their tests" cmake --build build-cuda --target renai tests_device || finish
      step "the CUDA build starts" build-cuda/renai --version
      ;;
    *)
      echo "ci/test.sh: unknown stage '$stage'; use checks, release, address, thread, tidy or cuda" >&2
      exit 2
      ;;
  esac
done
finish
