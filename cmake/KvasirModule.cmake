# kvasir_module(NAME [DEPS module...] [LIBS library...])
#
# One folder of src/ is one static library kvasir_NAME of all its *.cc files, and, if it has *_test.cc
# files, one test program NAME_test. DEPS are the modules that the table in docs/ARCHITECTURE.md
# allows; LIBS are third-party targets, private since their headers appear only in .cc files.
# Files are globbed with CONFIGURE_DEPENDS: adding a file needs no edit here.
function(kvasir_module name)
  cmake_parse_arguments(ARG "" "" "DEPS;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_(test|bench|fuzz)\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  if(NOT sources)
    return()
  endif()
  add_library(kvasir_${name} STATIC ${sources})
  target_link_libraries(kvasir_${name} PUBLIC kvasir_flags)
  foreach(dep ${ARG_DEPS})
    if(TARGET kvasir_${dep})
      target_link_libraries(kvasir_${name} PUBLIC kvasir_${dep})
    endif()
  endforeach()
  target_link_libraries(kvasir_${name} PRIVATE ${ARG_LIBS})
  if(NOT name STREQUAL "kernels")
    target_compile_definitions(kvasir_${name} PRIVATE _GLIBCXX_ASSERTIONS)
  endif()
  if(KVASIR_TESTS AND tests)
    kvasir_test(${name}_test SOURCES ${tests} LIBS kvasir_${name} ${ARG_LIBS})
  endif()
endfunction()

# kvasir_test(NAME SOURCES file... LIBS target...)
#
# A GoogleTest program that `./dev test` builds and runs (tools/run_tests.py says under which presets).
function(kvasir_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE kvasir_flags ${ARG_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE _GLIBCXX_ASSERTIONS
    KVASIR_TESTDATA_DIR="${CMAKE_CURRENT_SOURCE_DIR}/testdata"
    KVASIR_GOLDEN_DIR="${CMAKE_SOURCE_DIR}/tests/golden")
  add_test(NAME ${name} COMMAND ${name})
  set_property(GLOBAL APPEND PROPERTY KVASIR_TEST_PROGRAMS ${name})
endfunction()

# Writes test_programs.txt into the build folder, one "target path" a line: what tools/run_tests.py runs.
function(kvasir_write_test_list)
  get_property(programs GLOBAL PROPERTY KVASIR_TEST_PROGRAMS)
  get_property(replays GLOBAL PROPERTY KVASIR_FUZZ_REPLAYS)
  set(lines "")
  foreach(program ${programs} ${replays})
    string(APPEND lines "${program} $<TARGET_FILE:${program}>\n")
  endforeach()
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/test_programs.txt CONTENT "${lines}")
endfunction()
