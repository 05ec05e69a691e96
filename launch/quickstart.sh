#!/usr/bin/env bash
# From a bare machine to a trained network: installs what is missing, builds build/renai, packs Fashion-MNIST into HDF5 shards
# and trains on it with two ranks. What is already there is kept: a second run installs, builds and packs nothing.
# Options are handed on to `renai train`: launch/quickstart.sh --epochs 10
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top"
source_images=${RENAI_IDX:-/usr/share/datasets/fashion-mnist}
data=${RENAI_DATA:-datasets/fashion-mnist}
build=${RENAI_BUILD:-build}
run=${RENAI_RUN:-runs/quickstart-$(date +%Y%m%d-%H%M%S)}
ranks=2

say() { echo "quickstart: $*"; }

if [ -d "$source_images" ] || [ -e "$data/manifest.json" ]; then
  ci/dependencies.sh
else
  ci/dependencies.sh --data
fi

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

say "training on $ranks ranks; everything about the run goes to $run"
RENAI="$build/renai" launch/local.sh "$ranks" train --data "$data" --run-dir "$run" "$@"

value() { sed -n 's/.*"'"$1"'": *"\{0,1\}\([^,"}]*\).*/\1/p' "$run/summary.json" | head -n 1; }
say "$run/summary.json: status $(value status), val_top1 $(value val_top1), digest $(value digest)"
