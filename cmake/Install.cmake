# What `cmake --install` and the Debian packages hold, by component: tools, lib, dev, mpi, python.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

install(TARGETS bitcube_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
install(DIRECTORY examples/mnist-mlp examples/programs DESTINATION ${CMAKE_INSTALL_DATADIR}/bitcube COMPONENT tools)

install(TARGETS bitcube_c EXPORT bitcubeTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT lib NAMELINK_COMPONENT dev
        PUBLIC_HEADER DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
install(TARGETS bitcube EXPORT bitcubeTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
install(DIRECTORY include/bitcube ${PROJECT_BINARY_DIR}/include/bitcube DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        COMPONENT dev FILES_MATCHING PATTERN *.hpp)
set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/bitcube)
install(EXPORT bitcubeTargets NAMESPACE bitcube:: DESTINATION ${config_dir} COMPONENT dev)
configure_package_config_file(cmake/bitcubeConfig.cmake.in ${PROJECT_BINARY_DIR}/bitcubeConfig.cmake
                              INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/bitcubeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
# From the .pc file to the prefix: so it may be moved, and is right in a package whatever prefix the build knew.
file(RELATIVE_PATH pc_to_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/bitcube.pc.in ${PROJECT_BINARY_DIR}/bitcube.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/bitcubeConfig.cmake ${PROJECT_BINARY_DIR}/bitcubeConfigVersion.cmake
        DESTINATION ${config_dir} COMPONENT dev)
install(FILES ${PROJECT_BINARY_DIR}/bitcube.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

# Manual pages and completion scripts, both from what a program says of itself, in this folder of the build.
function(bitcube_shell_files program folder component)
  add_custom_command(OUTPUT ${folder}/made
                     COMMAND ${PROJECT_SOURCE_DIR}/tools/shell-files $<TARGET_FILE:${program}> ${folder}
                     COMMAND ${CMAKE_COMMAND} -E touch ${folder}/made
                     DEPENDS ${program} tools/shell-files VERBATIM)
  add_custom_target(${program}_shell_files ALL DEPENDS ${folder}/made)
  install(DIRECTORY ${folder}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT ${component})
endfunction()
set(shell_dir ${PROJECT_BINARY_DIR}/shell)
bitcube_shell_files(bitcube_program ${shell_dir} tools)
install(FILES ${shell_dir}/bitcube.bash RENAME bitcube
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT tools)
install(FILES ${shell_dir}/_bitcube DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT tools)

if(BITCUBE_MPI)
  install(TARGETS bitcube_mpi_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT mpi)
  bitcube_shell_files(bitcube_mpi_program ${PROJECT_BINARY_DIR}/shell-mpi mpi)
endif()

if(BITCUBE_PYTHON)
  # The package is the same for every Python of a Debian release, whose modules lie here.
  install(DIRECTORY ${PROJECT_BINARY_DIR}/python/bitcube DESTINATION lib/python3/dist-packages COMPONENT python
          PATTERN __pycache__ EXCLUDE
          PATTERN bin/bitcube PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
                                          WORLD_EXECUTE)
endif()

# The bill of materials of this build, in every package.
function(bitcube_install_sbom component package)
  install(CODE "
    if(EXISTS /var/lib/dpkg/status)
      execute_process(COMMAND ${PROJECT_SOURCE_DIR}/tools/sbom ${PROJECT_BINARY_DIR}
                      \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/share/doc/${package}/sbom.spdx.json\"
                      COMMAND_ERROR_IS_FATAL ANY)
    else()
      message(STATUS \"No bill of materials: it names Debian packages\")
    endif()" COMPONENT ${component})
endfunction()

set(CPACK_GENERATOR DEB)
# The same tree gives the same bytes: the clock, the umask and the folder do not matter.
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/SourceDate.cmake)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
                                                WORLD_EXECUTE)
set(CPACK_PACKAGE_VENDOR bitcube)
set(CPACK_PACKAGE_CONTACT "The bitcube authors <bitcube@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL tools lib dev)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME bitcube)
set(CPACK_DEBIAN_LIB_PACKAGE_NAME libbitcube${PROJECT_VERSION_MAJOR})
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libbitcube-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libbitcube${PROJECT_VERSION_MAJOR} (= ${PROJECT_VERSION}), libfmt-dev, libtbb-dev, nettle-dev, libhwy-dev, libre2-dev, pkg-config")
set(CPACK_COMPONENT_TOOLS_DESCRIPTION "Bit-exact model of the PTO CUBE matrix unit: the program\n The command bitcube quantises, multiplies, post-processes and converts as the PTO\n ISA's CUBE does, bit for bit and flag for flag.")
set(CPACK_COMPONENT_LIB_DESCRIPTION "Bit-exact model of the PTO CUBE matrix unit: the C library\n The shared library of bitcube.h.")
set(CPACK_COMPONENT_DEV_DESCRIPTION "Bit-exact model of the PTO CUBE matrix unit: for developers\n Headers of the C and C++ libraries, the static C++ library, CMake and pkg-config files.")
if(BITCUBE_PYTHON)
  list(APPEND CPACK_COMPONENTS_ALL python)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_NAME python3-bitcube)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "python3, python3-numpy")
  set(CPACK_COMPONENT_PYTHON_DESCRIPTION "Bit-exact model of the PTO CUBE matrix unit: for Python\n The package bitcube for NumPy arrays.")
endif()
if(BITCUBE_MPI)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
  set(CPACK_DEBIAN_MPI_PACKAGE_NAME bitcube-mpi)
  set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "openmpi-bin")
  set(CPACK_COMPONENT_MPI_DESCRIPTION "Bit-exact model of the PTO CUBE matrix unit: for many machines\n The command bitcube-mpi shares quantising, products, conformance checks and stimulus\n among the ranks of an MPI job.")
endif()
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} upper)
  bitcube_install_sbom(${component} ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
endforeach()
include(CPack)
