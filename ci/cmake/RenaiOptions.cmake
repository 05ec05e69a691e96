# Build options and the compile flags shared by every target.
option(RENAI_BUILD_TESTS "Build the tests and benchmarks" ON)
option(RENAI_WERROR "Treat warnings as errors" ON)
set(RENAI_SANITIZE "" CACHE STRING "Sanitizers: 'address,undefined' or 'thread'")
if(NOT RENAI_SANITIZE MATCHES "^(address,undefined|thread)?$")
  message(FATAL_ERROR "RENAI_SANITIZE is '${RENAI_SANITIZE}'; use 'address,undefined', 'thread' or nothing")
endif()
set(RENAI_ONEDNN "AUTO" CACHE STRING "oneDNN leaf of the CPU backend: AUTO, ON or OFF")

find_program(RENAI_CCACHE ccache)
if(RENAI_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${RENAI_CCACHE})
endif()

add_library(renai_flags INTERFACE)
# For the host compiler; nvcc hands none of these on. Device code has options of its own.
set(renai_host_options -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports std::string concatenation of a literal and a temporary (its bug 105651), and members of std::variant-like
  # unions of header-only libraries as maybe uninitialised. -Wuninitialized stays on.
  list(APPEND renai_host_options -Wno-restrict -Wno-maybe-uninitialized)
endif()
# a*b+c is contracted only where a kernel asks for it: the same source gives the same bits at every optimisation level.
list(APPEND renai_host_options -ffp-contract=off)
if(RENAI_WERROR)
  list(APPEND renai_host_options -Werror)
endif()
target_compile_options(renai_flags INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:${renai_host_options}>"
                                             "$<$<COMPILE_LANGUAGE:CUDA>:-O3;--expt-relaxed-constexpr;-Xcompiler=-Wall>")
if(RENAI_SANITIZE)
  # -O1 last: sanitized code is compiled three times faster and keeps readable stacks.
  set(renai_sanitize -fsanitize=${RENAI_SANITIZE} -fno-omit-frame-pointer -g1 -O1)
  target_compile_options(renai_flags INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:${renai_sanitize}>")
  target_link_options(renai_flags INTERFACE -fsanitize=${RENAI_SANITIZE})
endif()
