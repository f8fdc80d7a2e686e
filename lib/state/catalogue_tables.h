/* catalogue_tables.h: a sealed catalogue in tables that the processes of one host share. */
#ifndef FSDPCK_STATE_CATALOGUE_TABLES_H
#define FSDPCK_STATE_CATALOGUE_TABLES_H

#include "base/table_file.h"
#include "state/catalogue.h"

/* Writes all of it, or reads all of it into a catalogue after catalogue_init. UNSUPPORTED: it borrows memory of its
 * reader (cat_origin.metadata), so it cannot be shared. */
fsdpck_status catalogue_tables(catalogue *c, table_file *f, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
