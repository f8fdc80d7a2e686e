#include "formats/common/lost_text.h"

#include "base/text.h"

#include <inttypes.h>
#include <string.h>

/* Most names, and their bytes: an error has space for the numbers and these. */
#define LOST_NAMED  3u
#define NAMES_BYTES 80u
/* The most bytes of a tensor of one element: with none larger, hardly anything is left. */
#define SINGLE_NBYTES 8u

void lost_text_add(lost_text *l, const char *name)
{
    const bool fits = l->named == 0 || l->names.nbytes + strlen(name) + 4 <= NAMES_BYTES;
    if (l->lost++ != l->named || l->named == LOST_NAMED || !fits)
        return;
    text_printf(&l->names, "%s'%s'", l->named > 0 ? ", " : "", name);
    l->named++;
}

void lost_text_add_object(lost_text *l, const char *name)
{
    l->objects++;
    lost_text_add(l, name);
}

void lost_text_add_whole(lost_text *l, uint64_t nbytes)
{
    l->whole++;
    l->whole_nbytes += nbytes;
    l->largest_nbytes = nbytes > l->largest_nbytes ? nbytes : l->largest_nbytes;
}

static void write_lost(const lost_text *l, text_buf *text)
{
    const uint64_t tensors = l->lost - l->objects;
    text_puts(text, ", ");
    if (tensors > 0)
        text_printf(text, "%" PRIu64 " tensor%s", tensors, text_plural(tensors));
    if (l->objects > 0)
        text_printf(text, "%s%" PRIu64 " object%s", tensors > 0 ? " and " : "", l->objects,
                    text_plural(l->objects));
    text_printf(text, " %s lost%s: %s", l->lost == 1 ? "is" : "are", l->no_cut ? "" : " or cut",
                l->names.text != NULL ? l->names.text : "");
    if (l->lost > l->named)
        text_printf(text, " and %" PRIu64 " more", l->lost - l->named);
}

/* Often only numbers such as steps are left, as each has a small record of its own. */
void lost_text_write(const lost_text *l, uint64_t tensors, text_buf *text)
{
    text_printf(
        text, "%" PRIu64 " of %" PRIu64 " tensor%s %s whole (%" PRIu64 " bytes%s)", l->whole,
        tensors, text_plural(tensors), l->whole == 1 ? "is" : "are", l->whole_nbytes,
        l->whole > 0 && l->largest_nbytes <= SINGLE_NBYTES ? ", at most 8 bytes each, such as steps"
                                                           : "");
    if (l->lost > 0)
        write_lost(l, text);
}

void lost_text_release(lost_text *l)
{
    text_release(&l->names);
}
