#!/usr/bin/env bash
# clang-tidy over the sources of src/ with the checks of .clang-tidy: ci/checks/tidy.sh BUILD_FOLDER [FILE...]
set -euo pipefail
build=$1
shift
if [ $# -eq 0 ]; then
  mapfile -t files < <(git ls-files 'src/*.cpp')
else
  files=("$@")
fi
# What this build does not compile (a leaf whose library is not here) cannot be read either.
known=()
for file in "${files[@]}"; do
  if grep -qF "\"$PWD/$file\"" "$build/compile_commands.json"; then known+=("$file"); fi
done
if [ ${#known[@]} -eq 0 ]; then exit 0; fi
# The build uses GCC: flags and pragmas that only GCC knows are no finding, and omp.h is GCC's, with GCC's malloc(free).
gcc_headers=$(g++ -print-file-name=include)
printf '%s\0' "${known[@]}" | xargs -0 -n 4 -P "$(nproc)" clang-tidy-16 -p "$build" --quiet \
  --extra-arg=-idirafter --extra-arg="$gcc_headers" --extra-arg='-D__malloc__(free)=__malloc__' \
  --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-ignored-optimization-argument \
  --extra-arg=-Wno-unknown-attributes --extra-arg=-Wno-unknown-pragmas
