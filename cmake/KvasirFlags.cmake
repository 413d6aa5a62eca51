set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
# -g1: line tables for stack traces; full debug information doubles the build time on two cores.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
set(CMAKE_CXX_FLAGS_RELEASE "-O2")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Object files do not depend on where the checkout lies, so that a fresh clone hits the cache.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}
      CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()

add_library(kvasir_flags INTERFACE)
# -ffp-contract=off: a result must not depend on which multiply-adds the compiler chooses to fuse.
# x86-64-v2 is the floor; kernels add their own instruction sets and are chosen at start.
target_compile_options(kvasir_flags INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wno-unused-parameter
  -Werror=unused-result -Werror=return-type
  -march=x86-64-v2 -ffp-contract=off -fno-math-errno
  -ffile-prefix-map=${CMAKE_SOURCE_DIR}=.)
if(KVASIR_WERROR)
  target_compile_options(kvasir_flags INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # Sources may switch off a warning that only g++ knows; an .inl file need not use all its constants in
  # each instruction set.
  target_compile_options(kvasir_flags INTERFACE -Wthread-safety -Werror=thread-safety
    -Wno-unknown-warning-option -Wno-unused-const-variable)
endif()
if(KVASIR_TIDY)
  find_program(CLANG_TIDY_PROGRAM NAMES clang-tidy-14 clang-tidy REQUIRED)
  set(CMAKE_CXX_CLANG_TIDY ${CLANG_TIDY_PROGRAM} --quiet)
endif()
if(KVASIR_FUZZ)
  # Coverage feedback in the libraries; the fuzz targets alone link libFuzzer's main.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(KVASIR_SANITIZE)
  add_compile_options(-fsanitize=${KVASIR_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${KVASIR_SANITIZE})
  if(KVASIR_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()
target_include_directories(kvasir_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
