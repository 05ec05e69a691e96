#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that are missing. Without anything missing it needs neither network nor rights.
#   ci/dependencies.sh            what building and running need
#   ci/dependencies.sh --data     and the Fashion-MNIST data set
#   ci/dependencies.sh --tests    and what the tests need
#   ci/dependencies.sh --list     prints the packages chosen so far instead of installing
set -euo pipefail

packages=(
  g++ cmake ninja-build pkg-config
  openmpi-bin libopenmpi-dev
  libhdf5-dev zlib1g-dev
  libdnnl-dev
  libcli11-dev libspdlog-dev nlohmann-json3-dev libtomlplusplus-dev libxxhash-dev
)
list_only=false
for argument in "$@"; do
  case $argument in
    --data) packages+=(dataset-fashion-mnist) ;;
    --tests)
      packages+=(
        git libgtest-dev libgmock-dev libbenchmark-dev
        python3 python3-numpy python3-h5py hdf5-tools
        clang-format-14 clang-tidy-16 shellcheck
      )
      ;;
    --list) list_only=true ;;
    *)
      echo "ci/dependencies.sh: unknown argument '$argument'; use --data, --tests or --list" >&2
      exit 2
      ;;
  esac
done
if $list_only; then
  printf '%s\n' "${packages[@]}"
  exit 0
fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "ci/dependencies.sh: this system has no apt-get; install the counterparts of these Debian packages yourself:" >&2
  echo "  ${packages[*]}" >&2
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "ci/dependencies.sh: packages are missing and there is no sudo; as root run:" >&2
    echo "  apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 4
  fi
  as_root=(sudo)
fi
echo "installing: ${missing[*]}"
"${as_root[@]}" apt-get -o Acquire::Retries=3 -qq update
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 \
  -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
