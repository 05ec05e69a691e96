#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that are missing. Without anything missing it needs neither network nor rights.
#   ci/dependencies.sh            what building and running need
#   ci/dependencies.sh --data     and the Fashion-MNIST data set
#   ci/dependencies.sh --tests    and what the tests need
#   ci/dependencies.sh --list     prints the packages chosen so far instead of installing
#   ci/dependencies.sh --cuda FOLDER         where a GPU and nvcc are, also what the CUDA leaves need and nothing here has, as
#                                            Python packages in FOLDER (CMake looks into python/ of its build folder)
#   ci/dependencies.sh --cuda-always FOLDER  the same without a GPU, to compile them only
# Whatever is wrong with the Python packages is said in one line and is no failure: a CPU build needs none of them.
set -euo pipefail

gpu_here() { [ -e /dev/nvidia0 ] || [[ $(nvidia-smi -L 2>/dev/null) == *"GPU 0"* ]]; }

# header_in NAME PLACE...
header_in() {
  local name=$1 place
  shift
  for place in "$@"; do [ ! -e "$place/$name" ] || return 0; done
  return 1
}

# A Python that has pip.
find_pip() {
  local candidate
  for candidate in python3 /usr/bin/python3; do
    if "$candidate" -m pip --version >/dev/null 2>&1; then
      echo "$candidate"
      return 0
    fi
  done
  return 1
}

# cuda_packages FOLDER: the headers of the cuDNN front end, and cuDNN, NCCL, cuBLAS and nvrtc where the system lacks them.
cuda_packages() {
  local folder=$1 nvcc toolkit major site sites places line header wanted=() headers=() python output
  nvcc=$(command -v "${CUDACXX:-nvcc}" || command -v /usr/local/cuda/bin/nvcc) || return 0  # CMake says what that means.
  toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
  major=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p' || true)
  sites=$(python3 -c 'import site; print("\n".join([site.getusersitepackages(), *site.getsitepackages()]))' 2>/dev/null || true)
  places=("$toolkit/include" /usr/local/cuda/include /usr/include /usr/include/*-linux-gnu /usr/local/include)
  while read -r site; do
    [ -z "$site" ] || places+=("$site/include" "$site"/nvidia/*/include)
  done <<<"$sites"
  local needs=("cudnn_frontend.h nvidia-cudnn-frontend~=1.32")
  if [ "$major" = 13 ]; then
    needs+=("cudnn_version.h nvidia-cudnn-cu13~=9.0" "nccl.h nvidia-nccl-cu13~=2.0" "cublasLt.h nvidia-cublas>=13,<14"
      "nvrtc.h nvidia-cuda-nvrtc>=13,<14")
  fi
  for line in "${needs[@]}"; do
    header=${line%% *}
    if ! header_in "$header" "${places[@]}"; then
      wanted+=("${line#* }")
      headers+=("$header")
    fi
  done
  local lacking=false
  for header in "${headers[@]:+${headers[@]}}"; do
    header_in "$header" "$folder/include" "$folder"/nvidia/*/include || lacking=true
  done
  $lacking || return 0
  if ! python=$(find_pip); then
    echo "ci/dependencies.sh: no CUDA leaves: there is no pip (python3-pip) to fetch ${wanted[*]}" >&2
    return 0
  fi
  echo "installing into $folder: ${wanted[*]}"
  # All at once: a later call would replace the folders that packages share.
  if ! output=$("$python" -m pip --disable-pip-version-check --retries 1 --timeout 20 install --quiet --no-deps --upgrade \
    --target "$folder" "${wanted[@]}" 2>&1); then
    echo "ci/dependencies.sh: no CUDA leaves: pip cannot fetch ${wanted[*]} (is there a network?):" \
      "$(grep -v '^ *$' <<<"$output" | tail -n 1)" >&2
  fi
}

packages=(
  g++ cmake ninja-build pkg-config
  openmpi-bin libopenmpi-dev
  libhdf5-dev zlib1g-dev libjpeg-dev libpng-dev
  libdnnl-dev
  libcli11-dev libspdlog-dev nlohmann-json3-dev libtomlplusplus-dev libxxhash-dev
)
list_only=false
cuda_folder=
while [ $# -gt 0 ]; do
  case $1 in
    --data) packages+=(dataset-fashion-mnist) ;;
    --tests)
      packages+=(
        git libgtest-dev libgmock-dev libbenchmark-dev
        python3 python3-numpy python3-h5py python3-pil hdf5-tools
        clang-format-14 clang-tidy-16 shellcheck
      )
      ;;
    --list) list_only=true ;;
    --cuda | --cuda-always)
      [ $# -ge 2 ] || { echo "ci/dependencies.sh: $1 needs a folder, such as build/python" >&2 && exit 2; }
      if [ "$1" = --cuda-always ] || gpu_here; then cuda_folder=$2; fi
      shift
      ;;
    *)
      echo "ci/dependencies.sh: unknown argument '$1'; use --data, --tests, --cuda, --cuda-always or --list" >&2
      exit 2
      ;;
  esac
  shift
done
if $list_only; then
  printf '%s\n' "${packages[@]}"
  exit 0
fi

[ -z "$cuda_folder" ] || cuda_packages "$cuda_folder"

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
