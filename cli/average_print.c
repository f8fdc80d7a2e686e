#include "average_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

/* Inputs whose coefficients are listed without -v. */
#define INPUTS_SHOWN 16u

static const char *escaped(char *text, size_t capacity, const char *path)
{
    return fsdpck_escape(text, capacity, path, strlen(path));
}

static void print_method(const command_request *r, const fsdpck_average_info *a)
{
    const command_options *w = r->given;
    char n[40], m[40], path[4200];
    printf("average: %s of %s", report_count(n, sizeof n, a->tensors, "tensor"),
           report_count(m, sizeof m, a->inputs, "checkpoint"));
    if (w->slerp != NULL)
        printf(", slerp at %s", w->slerp);
    if (w->schedule != NULL)
        printf(", schedule %s", w->schedule);
    if (w->weights != NULL && !w->normalize)
        printf(", sum of the weights %.10g", a->sum);
    if (w->average_base != NULL)
        printf(", as differences from %s, scaled by %s",
               escaped(path, sizeof path, w->average_base), w->scale == NULL ? "1" : w->scale);
    putchar('\n');
}

/* The tensor whose input is farthest from the average. */
static fsdpck_average_tensor farthest(const fsdpck_checkpoint *src, const fsdpck_average_info *a)
{
    fsdpck_average_tensor found = FSDPCK_INIT(fsdpck_average_tensor);
    for (uint64_t i = 0; i < a->tensors; i++) {
        fsdpck_average_tensor t = FSDPCK_INIT(fsdpck_average_tensor);
        fsdpck_average_get_tensor(src, i, &t);
        if (i == 0 || t.distance > found.distance)
            found = t;
    }
    return found;
}

static void print_distance(const command_request *r, const fsdpck_average_tensor *t)
{
    char path[4200];
    char *name = malloc(4 * t->name_nbytes + 1);
    if (name == NULL)
        return;
    printf("%.6g: '%s' of %s\n", t->distance,
           fsdpck_escape(name, 4 * t->name_nbytes + 1, t->name, t->name_nbytes),
           escaped(path, sizeof path, r->sources[t->input]));
    free(name);
}

void average_print_text(const cli *c, const command_request *r, const fsdpck_checkpoint *src)
{
    fsdpck_average_info a = FSDPCK_INIT(fsdpck_average_info);
    char path[4200];
    if (r->sources == NULL)
        return;
    fsdpck_average_get_info(src, &a);
    print_method(r, &a);
    for (size_t i = 0; a.coefficients != NULL && i < a.inputs; i++) {
        if (i == INPUTS_SHOWN && c->verbose == 0) {
            printf("  ... %zu more\n", a.inputs - i);
            break;
        }
        printf("  %.10g %s", a.coefficients[i], escaped(path, sizeof path, r->sources[i]));
        if (a.steps[i] >= 0)
            printf(", step %" PRIi64, a.steps[i]);
        putchar('\n');
    }
    if (r->job.dry_run.mode != 0 || a.tensors == 0)
        return;
    const fsdpck_average_tensor most = farthest(src, &a);
    fputs("largest distance of an input from the average: ", stdout);
    print_distance(r, &most);
    for (uint64_t i = 0; c->verbose > 0 && i < a.tensors; i++) {
        fsdpck_average_tensor t = FSDPCK_INIT(fsdpck_average_tensor);
        fsdpck_average_get_tensor(src, i, &t);
        fputs("  ", stdout);
        print_distance(r, &t);
    }
}

static void put_inputs(const command_request *r, const fsdpck_average_info *a, json_writer *w)
{
    json_member_array(w, "inputs");
    for (size_t i = 0; i < r->source_count; i++) {
        json_begin_object(w);
        report_path(w, "path", r->sources[i]);
        if (a->coefficients != NULL)
            json_member_double(w, "coefficient", a->coefficients[i]);
        if (a->steps != NULL && a->steps[i] >= 0)
            json_member_u64(w, "step", (uint64_t)a->steps[i]);
        json_end_object(w);
    }
    json_end_array(w);
}

static void put_distances(const fsdpck_checkpoint *src, const fsdpck_average_info *a,
                          json_writer *w)
{
    json_member_double(w, "largest_distance", farthest(src, a).distance);
    json_member_array(w, "distances");
    for (uint64_t i = 0; i < a->tensors; i++) {
        fsdpck_average_tensor t = FSDPCK_INIT(fsdpck_average_tensor);
        fsdpck_average_get_tensor(src, i, &t);
        json_begin_object(w);
        report_name(w, "name", t.name, t.name_nbytes);
        json_member_double(w, "distance", t.distance);
        json_member_u64(w, "input", t.input + 1);
        json_end_object(w);
    }
    json_end_array(w);
}

static void put_method(const command_request *r, const fsdpck_average_info *a, json_writer *w)
{
    const command_options *o = r->given;
    if (a->coefficients != NULL)
        json_member_double(w, "coefficients_sum", a->sum);
    json_member_string(w, "schedule", o->schedule);
    json_member_string(w, "slerp", o->slerp);
    if (o->average_base != NULL) {
        report_path(w, "base", o->average_base);
        json_member_string(w, "scale", o->scale == NULL ? "1" : o->scale);
    }
    json_member_string(w, "accumulate", o->accumulate == 1 ? "fp64" : "fp32");
}

int average_report_failure(const cli *c, const command_request *r, const fsdpck_checkpoint *src,
                           const fsdpck_info *source, const fsdpck_error *err)
{
    fsdpck_average_info a = FSDPCK_INIT(fsdpck_average_info);
    json_report out;
    report_failure_text(c, err);
    if (!c->json)
        return (int)err->status;
    if (src != NULL)
        fsdpck_average_get_info(src, &a);
    json_writer *const w = report_begin_failure(&out, c, source, err);
    json_member_object(w, "average");
    put_inputs(r, &a, w);
    put_method(r, &a, w);
    json_end_object(w);
    return report_end(&out);
}

void average_put_json(const command_request *r, const fsdpck_checkpoint *src, json_writer *w)
{
    fsdpck_average_info a = FSDPCK_INIT(fsdpck_average_info);
    if (r->sources == NULL)
        return;
    fsdpck_average_get_info(src, &a);
    json_member_object(w, "average");
    put_inputs(r, &a, w);
    put_method(r, &a, w);
    json_member_u64(w, "averaged", a.tensors);
    if (r->job.dry_run.mode == 0)
        put_distances(src, &a, w);
    json_end_object(w);
}
