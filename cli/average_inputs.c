#include "average_inputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static fsdpck_status fail_number(const char *option, const char *text, fsdpck_error *err)
{
    err->status = FSDPCK_USAGE;
    snprintf(err->message, sizeof err->message, "%s: '%.100s' is not a number", option, text);
    return FSDPCK_USAGE;
}

/* A sign, digits, a point and an exponent only; strtod would also accept blanks, hexadecimal numbers, nan and
 * infinity. */
static bool read_number(const char **text, double *number)
{
    char *end;
    const char *digits = *text + (**text == '-' || **text == '+');
    if (strspn(digits, "0123456789.") == 0)
        return false;
    *number = strtod(*text, &end);
    const size_t used = (size_t)(end - *text);
    if (used == 0 || strspn(*text, "+-0123456789.eE") < used)
        return false;
    *text = end;
    return true;
}

static fsdpck_status read_only(const char *option, const char *text, double *number,
                               fsdpck_error *err)
{
    const char *at = text;
    return text == NULL || (read_number(&at, number) && *at == '\0')
               ? FSDPCK_OK
               : fail_number(option, text, err);
}

static fsdpck_status fail_empty(const char *text, size_t number, fsdpck_error *err)
{
    err->status = FSDPCK_USAGE;
    snprintf(err->message, sizeof err->message, "--weights: item %zu of '%.100s' is empty", number,
             text);
    return FSDPCK_USAGE;
}

/* "--weights 1 2": the operand 2 would be a checkpoint that does not exist. */
static fsdpck_status check_separators(const command_request *r, size_t weights, fsdpck_error *err)
{
    for (size_t i = 0; weights != r->source_count && i <= r->source_count; i++) {
        const char *operand = i < r->source_count ? r->sources[i] : r->dst, *at = operand;
        double number;
        if (!read_number(&at, &number) || *at != '\0')
            continue;
        err->status = FSDPCK_USAGE;
        snprintf(err->message, sizeof err->message,
                 "--weights '%.100s' has %zu of %zu weights, and operand '%.100s' is a number",
                 r->given->weights, weights, r->source_count, operand);
        snprintf(err->next, sizeof err->next, "separate the weights by commas: --weights 1,2");
        return FSDPCK_USAGE;
    }
    return FSDPCK_OK;
}

/* "0.5,0.25,0.25" */
static fsdpck_status read_weights(const char *text, double **weights, size_t *count,
                                  fsdpck_error *err)
{
    const char *at = text;
    *weights = calloc(strlen(text) + 1, sizeof **weights);
    if (*weights == NULL) {
        err->status = FSDPCK_LIMIT;
        snprintf(err->message, sizeof err->message, "out of memory for the weights");
        return FSDPCK_LIMIT;
    }
    for (;; at++) {
        if (*at == ',' || *at == '\0')
            return fail_empty(text, *count + 1, err);
        if (!read_number(&at, &(*weights)[*count]) || (*at != ',' && *at != '\0'))
            return fail_number("--weights", text, err);
        ++*count;
        if (*at == '\0')
            return FSDPCK_OK;
    }
}

/* DST first: the first SRC does not exist, but DST does. */
static void hint_at_order(const command_request *r, fsdpck_error *err)
{
    if (err->next[0] == '\0' && access(r->sources[0], F_OK) != 0 && access(r->dst, F_OK) == 0)
        snprintf(err->next, sizeof err->next, "check its name; DST is the last operand");
}

static fsdpck_status open_all(const cli *c, const command_request *r, convert_inputs *in,
                              fsdpck_checkpoint **base, fsdpck_error *err)
{
    in->averaged = calloc(r->source_count + 1, sizeof(fsdpck_checkpoint *));
    if (in->averaged == NULL) {
        err->status = FSDPCK_LIMIT;
        snprintf(err->message, sizeof err->message, "out of memory for the inputs");
        return FSDPCK_LIMIT;
    }
    for (size_t i = 0; i < r->source_count; i++) {
        const fsdpck_status st =
            fsdpck_open(c->ctx, r->sources[i], &r->open, &in->averaged[i], err);
        if (st != FSDPCK_OK) {
            if (i == 0)
                hint_at_order(r, err);
            return st;
        }
        in->averaged_count++;
    }
    if (r->given->average_base == NULL)
        return FSDPCK_OK;
    const fsdpck_status st = fsdpck_open(c->ctx, r->given->average_base, &r->open,
                                         &in->averaged[in->averaged_count], err);
    if (st == FSDPCK_OK)
        *base = in->averaged[in->averaged_count++];
    return st;
}

fsdpck_status average_inputs_open(const cli *c, const command_request *r, convert_inputs *in,
                                  fsdpck_error *err)
{
    fsdpck_average_options o = FSDPCK_INIT(fsdpck_average_options);
    double *weights = NULL;
    o.scale = 1;
    o.normalize = r->given->normalize;
    o.schedule = r->given->schedule;
    o.accumulate_fp64 = r->given->accumulate == 1;
    o.objects_from = r->given->objects_from;
    fsdpck_select_options select = r->job.select;
    if (select.part > (int)FSDPCK_PART_ALL) { /* the last choice of --part */
        select.part = FSDPCK_PART_MODEL;
        o.ema = 1;
    }
    o.select = &select;
    o.slerp = r->given->slerp != NULL;
    fsdpck_status st = read_only("--scale", r->given->scale, &o.scale, err);
    if (st == FSDPCK_OK)
        st = read_only("--slerp", r->given->slerp, &o.slerp_t, err);
    if (st == FSDPCK_OK && r->given->weights != NULL)
        st = read_weights(r->given->weights, &weights, &o.weights_count, err);
    o.weights = weights;
    if (st == FSDPCK_OK && weights != NULL)
        st = check_separators(r, o.weights_count, err);
    if (st == FSDPCK_OK)
        st = open_all(c, r, in, &o.base, err);
    if (st == FSDPCK_OK)
        st = fsdpck_average(c->ctx, in->averaged, r->source_count, &o, &in->src, err);
    free(weights);
    return st;
}

void average_inputs_close(convert_inputs *in)
{
    for (size_t i = 0; i < in->averaged_count; i++)
        fsdpck_close(in->averaged[i]);
    free(in->averaged);
    in->averaged = NULL;
    in->averaged_count = 0;
}
