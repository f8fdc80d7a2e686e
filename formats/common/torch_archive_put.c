#include <string.h>

#include "formats/common/pickle.h"
#include "formats/common/torch_archive.h"

/* The opcodes of torch.save for a CPU tensor: _rebuild_tensor_v2, or _v3 over bytes for a dtype
 * that has no storage class. */
void torch_put_tensor(pickle_writer *w, const char *key, dtype d, unsigned ndim,
                      const uint64_t *sizes, const uint64_t *strides, uint64_t offset_nelems,
                      uint64_t storage_nelems)
{
    const dtype_info *info = dtype_get(d);
    const bool untyped = info->storage_class == NULL;

    pickle_put_global(w, "torch._utils", untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
    pickle_put_mark(w);
    pickle_put_mark(w);
    pickle_put_str(w, "storage", 7);
    if (untyped)
        pickle_put_global(w, "torch.storage", "UntypedStorage");
    else
        pickle_put_global(w, "torch", info->storage_class);
    pickle_put_str(w, key, strlen(key));
    pickle_put_str(w, "cpu", 3);
    pickle_put_int(w, (int64_t)(untyped ? storage_nelems * info->itemsize_bytes : storage_nelems));
    pickle_put_tuple_marked(w);
    pickle_put_persid(w);
    pickle_put_int(w, (int64_t)offset_nelems);
    pickle_put_dims(w, ndim, sizes);
    pickle_put_dims(w, ndim, strides);
    pickle_put_bool(w, false);
    pickle_put_global(w, "collections", "OrderedDict");
    pickle_put_tuple(w, 0);
    pickle_put_reduce(w);
    if (untyped)
        pickle_put_global(w, "torch", info->name);
    pickle_put_tuple_marked(w);
    pickle_put_reduce(w);
}
