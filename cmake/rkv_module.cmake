# rkv_module(NAME folder DEPS targets… PRIVATE_DEPS targets… EXCLUDE regex)
#
# One static library rkv_<folder> from every .cc of the folder (tests left out) and one test program
# rkv_<folder>_test from every *_test.cc, label `unit`.
function(rkv_module name)
  cmake_parse_arguments(ARG "" "EXCLUDE" "DEPS;PRIVATE_DEPS;TEST_DEPS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.h)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  if(ARG_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${ARG_EXCLUDE}")
  endif()
  list(FILTER headers EXCLUDE REGEX "-inl\\.h$")  # compiled once per instruction set, not alone

  add_library(rkv_${name} STATIC ${sources})
  target_sources(rkv_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${CMAKE_SOURCE_DIR}/src FILES ${headers})
  target_include_directories(rkv_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
  target_link_libraries(rkv_${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  rkv_flags(rkv_${name})

  if(RKV_TESTS AND tests)
    rkv_test(rkv_${name}_test LABEL unit SOURCES ${tests} DEPS rkv_${name} ${ARG_TEST_DEPS})
  endif()
endfunction()

# rkv_test(NAME LABEL label SOURCES … DEPS …): a GoogleTest program whose cases ctest knows one by one.
function(rkv_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  rkv_flags(${name})
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
    PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
endfunction()

# Warnings and sanitizers on our own targets only; no -march, no -ffast-math.
function(rkv_flags target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow)
  if(RKV_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(RKV_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${RKV_SANITIZE} -fno-omit-frame-pointer
      -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=${RKV_SANITIZE})
  endif()
endfunction()
