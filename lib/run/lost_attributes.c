#include "run/lost_attributes.h"

attributes_lost lost_attributes_count(const target *to, bool has_buffers)
{
    const unsigned kinds = CAT_PYTHON_ATTRIBUTES | (has_buffers ? (unsigned)CAT_PYTHON_BUFFER : 0u);
    attributes_lost lost = {0};
    for (uint32_t i = 0; i < catalogue_tensor_count(&to->cat); i++) {
        if (!(catalogue_tensor(&to->cat, i)->python & kinds))
            continue;
        if (lost.tensors++ == 0)
            lost.first = i;
    }
    return lost;
}
