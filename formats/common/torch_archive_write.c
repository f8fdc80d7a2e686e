#include <string.h>

#include "formats/common/pickle.h"
#include "formats/common/torch_archive.h"
#include "state/catalogue.h"

static void put_no_hooks(pickle_writer *w)
{
    pickle_put_global(w, "collections", "OrderedDict");
    pickle_put_tuple(w, 0);
    pickle_put_reduce(w);
}

/* The opcodes of torch.save for a CPU tensor: _rebuild_tensor_v2, or _v3 over bytes for a dtype
 * that has no storage class. */
static void put_tensor(pickle_writer *w, const char *key, dtype d, unsigned ndim,
                       const uint64_t *sizes, const uint64_t *strides, uint64_t offset_nelems,
                       uint64_t storage_nelems, bool requires_grad)
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
    pickle_put_bool(w, requires_grad);
    put_no_hooks(w);
    if (untyped)
        pickle_put_global(w, "torch", info->name);
    pickle_put_tuple_marked(w);
    pickle_put_reduce(w);
}

void torch_put_tensor(pickle_writer *w, const char *key, dtype d, unsigned ndim,
                      const uint64_t *sizes, const uint64_t *strides, uint64_t offset_nelems,
                      uint64_t storage_nelems)
{
    put_tensor(w, key, d, ndim, sizes, strides, offset_nelems, storage_nelems, false);
}

void torch_put_parameter_begin(pickle_writer *w, const cat_tensor *t)
{
    if (!(t->python & CAT_PYTHON_PARAMETER))
        return;
    pickle_put_global(w, "torch._utils", "_rebuild_parameter");
    pickle_put_mark(w);
}

void torch_put_parameter_end(pickle_writer *w, const cat_tensor *t)
{
    if (!(t->python & CAT_PYTHON_PARAMETER))
        return;
    pickle_put_bool(w, (t->flags & CAT_TENSOR_REQUIRES_GRAD) != 0);
    put_no_hooks(w);
    pickle_put_tuple_marked(w);
    pickle_put_reduce(w);
}

void torch_put_tensor_of(pickle_writer *w, const char *key, const cat_tensor *t,
                         const uint64_t *sizes, const uint64_t *strides, uint64_t offset_nelems,
                         uint64_t storage_nelems)
{
    const bool is_parameter = (t->python & CAT_PYTHON_PARAMETER) != 0;
    torch_put_parameter_begin(w, t);
    put_tensor(w, key, (dtype)t->dtype, t->ndim, sizes, strides, offset_nelems, storage_nelems,
               !is_parameter && (t->flags & CAT_TENSOR_REQUIRES_GRAD) != 0);
    torch_put_parameter_end(w, t);
}
