# Third-party libraries. Required ones stop the configuration; optional ones are found or switched off with a line in the summary.
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(MPI REQUIRED COMPONENTS C)
# The C interface only: the C++ bindings that old libraries add to mpi.h are never linked.
target_compile_definitions(MPI::MPI_C INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
set(HDF5_PREFER_PARALLEL OFF)
find_package(HDF5 REQUIRED COMPONENTS C)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(TOMLPLUSPLUS REQUIRED IMPORTED_TARGET tomlplusplus)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(JPEG REQUIRED IMPORTED_TARGET libjpeg)
pkg_check_modules(PNG REQUIRED IMPORTED_TARGET libpng)

# Other libraries of libjpeg's interface cannot decode a part of an image.
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_LIBRARIES PkgConfig::JPEG)
check_cxx_source_compiles([[
#include <cstdio>
#include <jpeglib.h>
int main() { return jpeg_crop_scanline != nullptr && jpeg_skip_scanlines != nullptr ? 0 : 1; }
]] RENAI_JPEG_IS_TURBO)
unset(CMAKE_REQUIRED_LIBRARIES)
if(NOT RENAI_JPEG_IS_TURBO)
  message(FATAL_ERROR "The libjpeg found is not libjpeg-turbo 1.5 or later: it has no jpeg_crop_scanline. "
                      "Install libjpeg-dev (Debian, Ubuntu) or libjpeg-turbo-devel (Fedora)")
endif()

add_library(renai_hdf5 INTERFACE)
target_include_directories(renai_hdf5 SYSTEM INTERFACE ${HDF5_INCLUDE_DIRS})
target_link_libraries(renai_hdf5 INTERFACE ${HDF5_LIBRARIES})

# oneDNN by header and library: some distributions' package file asks for OpenCL's development files, which we do not need.
set(RENAI_HAVE_ONEDNN OFF)
if(NOT RENAI_ONEDNN STREQUAL "OFF")
  find_path(RENAI_ONEDNN_INCLUDE oneapi/dnnl/dnnl_version.h)
  find_library(RENAI_ONEDNN_LIBRARY dnnl)
  if(RENAI_ONEDNN_INCLUDE AND RENAI_ONEDNN_LIBRARY)
    set(RENAI_HAVE_ONEDNN ON)
    file(STRINGS "${RENAI_ONEDNN_INCLUDE}/oneapi/dnnl/dnnl_version.h" lines REGEX "#define DNNL_VERSION_(MAJOR|MINOR|PATCH)")
    list(TRANSFORM lines REPLACE ".*_(MAJOR|MINOR|PATCH) +([0-9]+).*" "\\2")
    list(JOIN lines "." RENAI_ONEDNN_VERSION)
    add_library(DNNL::dnnl UNKNOWN IMPORTED)
    set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION "${RENAI_ONEDNN_LIBRARY}"
                          INTERFACE_INCLUDE_DIRECTORIES "${RENAI_ONEDNN_INCLUDE}")
  elseif(RENAI_ONEDNN STREQUAL "ON")
    message(FATAL_ERROR "oneDNN was asked for (RENAI_ONEDNN=ON) but not found; install libdnnl-dev or set RENAI_ONEDNN=OFF")
  endif()
endif()

function(renai_print_summary)
  set(sanitizers "${RENAI_SANITIZE}")
  if(NOT sanitizers)
    set(sanitizers "none")
  endif()
  message(STATUS "renai ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}")
  message(STATUS "  MPI:     ${MPI_C_LIBRARIES} (MPI ${MPI_C_VERSION})")
  message(STATUS "  HDF5:    ${HDF5_VERSION}")
  message(STATUS "  JPEG:    libjpeg-turbo ${JPEG_VERSION}")
  if(RENAI_HAVE_ONEDNN)
    message(STATUS "  oneDNN:  ${RENAI_ONEDNN_VERSION}: the cpu backend is built")
  elseif(RENAI_ONEDNN STREQUAL "OFF")
    message(STATUS "  oneDNN:  switched off: the cpu backend is off, the reference backend remains")
  else()
    message(STATUS "  oneDNN:  not found: the cpu backend is off, the reference backend remains")
  endif()
  message(STATUS "  CUDA:    ${RENAI_CUDA_SUMMARY}")
  message(STATUS "  tests:   ${RENAI_BUILD_TESTS}; sanitizers: ${sanitizers}")
endfunction()
