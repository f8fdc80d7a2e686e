/* catalogue_copy.h: what a catalogue that is made from another one takes over unchanged. */
#ifndef FSDPCK_STATE_CATALOGUE_COPY_H
#define FSDPCK_STATE_CATALOGUE_COPY_H

#include "state/catalogue.h"

/* Files, meshes, specs, origin and skipped items of `from` into the empty catalogue `to`, with the
 * same indices. Paths of skipped items are not copied: they are values of the other pool. */
fsdpck_status catalogue_copy_frame(catalogue *to, const catalogue *from,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;

/* All of `from` except its chunks into the empty catalogue `to`: tensors, objects, names and values keep
 * their numbers. Add the chunks, then seal it: catalogue_seal_as(to, from). The metadata of the origin
 * is borrowed. */
fsdpck_status catalogue_copy_without_chunks(catalogue *to, const catalogue *from,
                                            fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
