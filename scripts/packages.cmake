# Debian packages by CPack, one for each component: scripts/package configures the build and calls it.
#
#     fsdpck       the program, its manual, completions
#     libfsdpck1   the shared library
#     libfsdpck-dev  headers, static library, fsdpck(3)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME fsdpck)
set(CPACK_PACKAGE_VENDOR "The fsdpck developers")
set(FSDPCK_MAINTAINER "The fsdpck developers <maintainers@fsdpck.example.org>" CACHE STRING "maintainer of the Debian packages")
set(CPACK_PACKAGE_CONTACT ${FSDPCK_MAINTAINER})
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program library development)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME fsdpck)
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION
  "tool for sharded PyTorch checkpoints\n\
 Inspects, verifies, consolidates, reshards and compares checkpoints of FSDP:\n\
 DCP folders, .pt files, one file per rank, sharded safetensors, HDF5. It needs\n\
 neither Python nor torch nor a GPU, and runs in bounded memory.")

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libfsdpck1)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/debian/triggers)
file(WRITE ${PROJECT_BINARY_DIR}/debian/triggers "activate-noawait ldconfig\n")
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION
  "library for sharded PyTorch checkpoints\n\
 The functions of fsdpck for other programs: reading checkpoints of FSDP, chunk\n\
 arithmetic, names of flat parameters, consolidating, resharding and verifying.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libfsdpck-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libfsdpck1 (= ${PROJECT_VERSION}-1)")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
  "library for sharded PyTorch checkpoints - development files\n\
 Headers, the static library and the manual page fsdpck(3).")

# Debian's files of documentation, and compressed pages. gzip -n records no time.
option(FSDPCK_DEBIAN "install the documentation that Debian packages have; used by scripts/package" OFF)
if(FSDPCK_DEBIAN)
  set(names fsdpck libfsdpck1 libfsdpck-dev)
  foreach(component name IN ZIP_LISTS CPACK_COMPONENTS_ALL names)
    set(doc ${CMAKE_INSTALL_DATADIR}/doc/${name})
    install(FILES ${PROJECT_BINARY_DIR}/debian/copyright ${PROJECT_BINARY_DIR}/debian/changelog.Debian.gz
      DESTINATION ${doc} COMPONENT ${component})
  endforeach()
  install(FILES README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/fsdpck COMPONENT program)
  install(FILES .github/CHANGELOG.md RENAME changelog DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/fsdpck
    COMPONENT program)
  install(CODE "
    execute_process(COMMAND gzip -9nf \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/doc/fsdpck/changelog
      COMMAND_ERROR_IS_FATAL ANY)" COMPONENT program)
  foreach(component program development)
    install(CODE "
      file(GLOB_RECURSE pages \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/*.[1-8]\")
      foreach(page IN LISTS pages)
        execute_process(COMMAND gzip -9nf \${page} COMMAND_ERROR_IS_FATAL ANY)
      endforeach()" COMPONENT ${component})
  endforeach()
endif()

include(CPack)
