/* JSON report of fsdpck inspect. */
#include <stdio.h>
#include <stdlib.h>

#include "inspect_print.h"
#include "report.h"

static cJSON *tensor_json(const fsdpck_checkpoint *ckpt, uint64_t index)
{
    char layout[128];
    fsdpck_tensor t = FSDPCK_INIT(fsdpck_tensor);
    fsdpck_get_tensor(ckpt, index, &t);
    fsdpck_describe_chunks(ckpt, index, layout, sizeof layout);
    cJSON *o = cJSON_CreateObject();
    if (o == NULL)
        return NULL;
    report_json_name(o, "name", t.name, t.name_nbytes);
    cJSON_AddStringToObject(o, "dtype", t.dtype);
    report_json_sizes(o, "shape", t.shape, t.ndim);
    cJSON_AddNumberToObject(o, "bytes", (double)t.nbytes);
    cJSON_AddNumberToObject(o, "chunks", (double)t.nchunks);
    cJSON_AddStringToObject(o, "layout", layout);
    cJSON_AddStringToObject(o, "part", fsdpck_part_name(t.part));
    return o;
}

static void add_counts(cJSON *e, const fsdpck_info *info)
{
    cJSON *n = cJSON_AddObjectToObject(e, "counts");
    cJSON_AddNumberToObject(n, "tensors", (double)info->tensors);
    cJSON_AddNumberToObject(n, "objects", (double)info->objects);
    cJSON_AddNumberToObject(n, "files", (double)info->files);
    cJSON_AddNumberToObject(n, "chunks", (double)info->chunks);
    cJSON_AddNumberToObject(n, "elements", (double)info->nelems);
    cJSON_AddNumberToObject(n, "bytes", (double)info->nbytes);
    cJSON_AddNumberToObject(n, "left_out", (double)info->left_out);
    cJSON *parts = cJSON_AddObjectToObject(e, "parts");
    for (int i = 0; i < 3; i++) {
        cJSON *part = cJSON_AddObjectToObject(parts, fsdpck_part_name((fsdpck_part)i));
        cJSON_AddNumberToObject(part, "tensors", (double)info->part_tensors[i]);
        cJSON_AddNumberToObject(part, "bytes", (double)info->part_nbytes[i]);
        cJSON_AddNumberToObject(part, "objects", (double)info->part_objects[i]);
    }
    cJSON_AddStringToObject(e, "model_key", info->model_key);
    cJSON_AddStringToObject(e, "part_rule", info->part_rule);
    cJSON_AddStringToObject(e, "note", info->note);
}

static void add_totals(cJSON *e, const fsdpck_checkpoint *ckpt, const inspect_totals *s)
{
    cJSON *dtypes = cJSON_AddObjectToObject(e, "dtypes");
    for (size_t i = 0; i < s->dtype_count; i++) {
        cJSON *d = cJSON_AddObjectToObject(dtypes, s->dtypes[i].dtype);
        cJSON_AddNumberToObject(d, "tensors", (double)s->dtypes[i].tensors);
        cJSON_AddNumberToObject(d, "bytes", (double)s->dtypes[i].nbytes);
    }
    cJSON *largest = cJSON_AddArrayToObject(e, "largest");
    for (size_t i = 0; i < s->largest_count; i++)
        cJSON_AddItemToArray(largest, tensor_json(ckpt, s->largest[i]));
    cJSON *ranks = cJSON_AddArrayToObject(e, "bytes_per_rank");
    for (size_t i = 0; i < s->rank_count; i++)
        cJSON_AddItemToArray(ranks, cJSON_CreateNumber((double)s->rank_nbytes[i]));
    cJSON *next = cJSON_AddArrayToObject(e, "next");
    for (size_t i = 0; i < INSPECT_NEXT && s->next[i][0] != '\0'; i++)
        cJSON_AddItemToArray(next, cJSON_CreateString(s->next[i]));
}

static void add_objects(cJSON *e, fsdpck_checkpoint *ckpt, uint64_t count)
{
    cJSON *list = cJSON_AddArrayToObject(e, "objects");
    for (uint64_t i = 0; i < count; i++) {
        fsdpck_object o = FSDPCK_INIT(fsdpck_object);
        fsdpck_error err;
        char *text = NULL;
        fsdpck_error_init(&err);
        fsdpck_get_object(ckpt, i, &o);
        cJSON *item = cJSON_CreateObject();
        report_json_name(item, "name", o.name, o.name_nbytes);
        cJSON_AddStringToObject(item, "part", fsdpck_part_name(o.part));
        if (o.rank >= 0)
            cJSON_AddNumberToObject(item, "rank", (double)o.rank);
        if (fsdpck_print_object(ckpt, i, 4000, &text, &err) == FSDPCK_OK)
            cJSON_AddStringToObject(item, "value", text == NULL ? "" : text);
        else
            cJSON_AddStringToObject(item, "error", err.message);
        free(text);
        cJSON_AddItemToArray(list, item);
    }
}

int inspect_print_json(const cli *c, fsdpck_checkpoint *ckpt, bool tensors, bool objects)
{
    inspect_totals s;
    if (!inspect_collect(ckpt, &s))
        return FSDPCK_LIMIT;
    cJSON *e = report_json_begin(c, 0, "none", &s.info);
    if (e != NULL) {
        add_counts(e, &s.info);
        add_totals(e, ckpt, &s);
        cJSON *list = tensors ? cJSON_AddArrayToObject(e, "tensors") : NULL;
        for (uint64_t i = 0; list != NULL && i < s.info.tensors; i++)
            cJSON_AddItemToArray(list, tensor_json(ckpt, i));
        if (objects)
            add_objects(e, ckpt, s.info.objects);
    }
    inspect_totals_release(&s);
    return e == NULL ? (int)FSDPCK_LIMIT : report_json_print(e, 0);
}
