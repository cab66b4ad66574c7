# Third-party libraries; scripts/setup installs them. llama.cpp's libraries come from .deps/venv when
# it is there, else from wherever CMAKE_PREFIX_PATH says.
file(GLOB RKV_VENV_SITE ${CMAKE_SOURCE_DIR}/.deps/venv/lib/python3*/site-packages)
list(APPEND CMAKE_PREFIX_PATH ${RKV_VENV_SITE})

find_package(Threads REQUIRED)
find_package(ggml CONFIG REQUIRED)
find_package(llama CONFIG REQUIRED)
find_package(fmt CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(Eigen3 CONFIG REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
find_package(OpenMP REQUIRED COMPONENTS CXX)  # only for omp_set_num_threads: oneDNN's own runtime

# Debian's dnnl CMake files need an OpenCL package that nothing else here wants.
find_library(RKV_DNNL dnnl REQUIRED)
find_path(RKV_DNNL_INCLUDE dnnl.hpp REQUIRED)

if(RKV_TESTS)
  find_package(GTest CONFIG REQUIRED)
  include(GoogleTest)
endif()
