# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#
# Build the provider against an rdma-core tree (-DRDMA_CORE_SRC=DIR): with its
# own header of the private interface and its libibverbs, which is built here
# in the folder rdma-core.
#
# To have the provider inside of such a tree instead, see
# providers/mic/CMakeLists.txt.

if(NOT EXISTS ${RDMA_CORE_SRC}/libibverbs/driver.h)
  message(FATAL_ERROR "RDMA_CORE_SRC=${RDMA_CORE_SRC} is not an rdma-core tree")
endif()

set(RDMA_CORE_BUILD ${CMAKE_BINARY_DIR}/rdma-core)
message(STATUS "Configuring rdma-core in ${RDMA_CORE_BUILD}")
execute_process(
  COMMAND ${CMAKE_COMMAND} -G ${CMAKE_GENERATOR} -S ${RDMA_CORE_SRC}
    -B ${RDMA_CORE_BUILD} -DCMAKE_C_COMPILER=${CMAKE_C_COMPILER}
    -DIN_PLACE=1 -DNO_PYVERBS=1 -DNO_MAN_PAGES=1 -DENABLE_RESOLVE_NEIGH=0
  OUTPUT_FILE ${CMAKE_BINARY_DIR}/rdma-core.log
  ERROR_FILE ${CMAKE_BINARY_DIR}/rdma-core.log
  RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "rdma-core: see ${CMAKE_BINARY_DIR}/rdma-core.log")
endif()

# The number in a provider's name, and the release.
file(STRINGS ${RDMA_CORE_BUILD}/include/config.h MIC_PABI
  REGEX "define IBVERBS_PABI_VERSION ")
string(REGEX MATCH "[0-9]+" MIC_PABI "${MIC_PABI}")
file(STRINGS ${RDMA_CORE_SRC}/CMakeLists.txt MIC_RDMA_CORE_VERSION
  REGEX "^set\\(PACKAGE_VERSION ")
string(REGEX MATCH "[0-9]+" MIC_RDMA_CORE_VERSION "${MIC_RDMA_CORE_VERSION}")

set(RDMA_CORE_IBVERBS ${RDMA_CORE_BUILD}/lib/libibverbs.so)
add_custom_target(rdma_core_ibverbs
  COMMAND ${CMAKE_COMMAND} --build ${RDMA_CORE_BUILD} --target ibverbs
  BYPRODUCTS ${RDMA_CORE_IBVERBS} VERBATIM)

target_compile_definitions(mic_verbs_private INTERFACE
  MIC_RDMA_CORE_VERSION=${MIC_RDMA_CORE_VERSION})
target_include_directories(mic_verbs_private SYSTEM INTERFACE
  ${RDMA_CORE_BUILD}/include)
target_link_libraries(mic_verbs_private INTERFACE ${RDMA_CORE_IBVERBS})
add_dependencies(mic_verbs_private rdma_core_ibverbs)
