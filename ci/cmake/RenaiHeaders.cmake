# Target `headers_alone`: one translation unit for each public header that includes nothing else, so a header that leans on its
# includer does not compile. Not part of `all`.
file(GLOB_RECURSE renai_headers RELATIVE "${CMAKE_SOURCE_DIR}/include" CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/include/*.hpp")
set(renai_header_sources)
foreach(header IN LISTS renai_headers)
  string(REPLACE "/" "." name "${header}")
  set(source "${CMAKE_BINARY_DIR}/headers_alone/${name}.cpp")
  # Twice: the second inclusion proves the include guard.
  file(CONFIGURE OUTPUT "${source}" CONTENT "#include \"${header}\"\n#include \"${header}\"\n" @ONLY)
  list(APPEND renai_header_sources "${source}")
endforeach()
add_library(headers_alone OBJECT EXCLUDE_FROM_ALL ${renai_header_sources})
target_include_directories(headers_alone PRIVATE "${CMAKE_SOURCE_DIR}/include")
target_link_libraries(headers_alone PRIVATE renai_flags)
target_compile_options(headers_alone PRIVATE -O0)
