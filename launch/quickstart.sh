#!/usr/bin/env bash
# From a bare machine to a trained network: installs what is missing, builds build/renai, packs Fashion-MNIST into HDF5 shards
# and trains on it with two ranks. What is already there is kept: a second run installs, builds and packs nothing.
# Where there is a GPU and all that its code needs, the build uses it (one rank for each of two GPUs, or one rank); where not,
# the configuration's line "CUDA:" says why.
# Options are handed on to `renai train`: launch/quickstart.sh --epochs 10
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top"
source_images=${RENAI_IDX:-/usr/share/datasets/fashion-mnist}
data=${RENAI_DATA:-datasets/fashion-mnist}
build=${RENAI_BUILD:-build}
run=${RENAI_RUN:-runs/quickstart-$(date +%Y%m%d-%H%M%S)}

say() { echo "quickstart: $*"; }

wants=()
[ -d "$source_images" ] || [ -e "$data/manifest.json" ] || wants+=(--data)
[ -e "$build/build.ninja" ] || wants+=(--cuda "$build/python")
ci/dependencies.sh "${wants[@]:+${wants[@]}}"

if ! [ -e "$build/build.ninja" ]; then
  say "configuring $build"
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DRENAI_BUILD_TESTS=OFF
fi
say "building $build/renai"
cmake --build "$build" --target renai

if ! [ -e "$data/manifest.json" ]; then
  if ! [ -d "$source_images" ]; then
    say "the Fashion-MNIST files are not in $source_images; set RENAI_IDX to the folder of the four IDX files" >&2
    exit 3
  fi
  say "packing $source_images into $data"
  "$build/renai" pack idx "$source_images" --out "$data"
fi

# Two ranks cannot share a GPU.
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
case ${CUDA_VISIBLE_DEVICES-all} in
  all | *,*) ;;
  ?*) [ "$gpus" = 0 ] || gpus=1 ;;
  *) gpus=0 ;;
esac
ranks=2
[ "$gpus" != 1 ] || ranks=1
say "training on $ranks rank$([ "$ranks" = 1 ] || echo s); everything about the run goes to $run"
RENAI="$build/renai" launch/local.sh "$ranks" train --data "$data" --run-dir "$run" "$@"

value() { sed -n 's/.*"'"$1"'": *"\{0,1\}\([^,"}]*\).*/\1/p' "$run/summary.json" | head -n 1; }
say "$run/summary.json: status $(value status), val_top1 $(value val_top1), digest $(value digest)"
