#include "formats/common/lost_text.h"

#include "base/text.h"

#include <inttypes.h>
#include <string.h>

/* Most names, and their bytes: an error has space for the numbers and these. */
#define LOST_NAMED  3u
#define NAMES_BYTES 110u

void lost_text_add(lost_text *l, const char *name)
{
    const bool fits = l->named == 0 || l->names.nbytes + strlen(name) + 4 <= NAMES_BYTES;
    if (l->lost++ != l->named || l->named == LOST_NAMED || !fits)
        return;
    text_printf(&l->names, "%s'%s'", l->named > 0 ? ", " : "", name);
    l->named++;
}

void lost_text_write(const lost_text *l, uint64_t tensors, bool objects, text_buf *text)
{
    const char *one = objects ? " or object is" : " is";
    const char *many = objects ? "s and objects are" : "s are";
    text_printf(text, "%" PRIu64 " of %" PRIu64 " tensor%s %s whole (%" PRIu64 " bytes)", l->whole,
                tensors, text_plural(tensors), l->whole == 1 ? "is" : "are", l->whole_nbytes);
    if (l->lost > 0)
        text_printf(text, ", %" PRIu64 " tensor%s lost%s: %s", l->lost,
                    l->lost == 1 ? one : many, l->no_cut ? "" : " or cut", l->names.text != NULL ? l->names.text : "");
    if (l->lost > l->named)
        text_printf(text, " and %" PRIu64 " more", l->lost - l->named);
}

void lost_text_release(lost_text *l)
{
    text_release(&l->names);
}
