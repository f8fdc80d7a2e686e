/* python_names.h: modules and names that Python 3 has renamed. A pickle of protocol 2 or less has the old
 * names, others have the new ones, and both are read as the same. */
#ifndef FSDPCK_PYTHON_NAMES_H
#define FSDPCK_PYTHON_NAMES_H

/* The names under which protocol 2 knows a symbol of Python 3: the same, or borrowed constants.
 * Those that would come back as something else when Python 3 reads them stay as they are. */
void python2_names(const char **module, const char **name);
/* The names that Python 3 has for a symbol of protocol 2, likewise. */
void python3_names(const char **module, const char **name);

#endif
