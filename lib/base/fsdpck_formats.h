/* fsdpck_formats.h: numbers of the formats that fsdpck reads and writes, see fsdpck-formats(5).
 *
 *     if (info.format_id == FSDPCK_FORMAT_DCP)
 *         ...
 *
 * A number keeps its meaning within a major version. A new format gets the number after the largest.
 */
#ifndef FSDPCK_FORMATS_H
#define FSDPCK_FORMATS_H

/* As info.format_id and report.format_id contain it; the comment is the format's name. */
typedef enum fsdpck_format_id {
    FSDPCK_FORMAT_NONE = 0,
    FSDPCK_FORMAT_DCP = 1,                  /* "dcp" */
    FSDPCK_FORMAT_DCP_SAFETENSORS = 2,      /* "dcp-safetensors" */
    FSDPCK_FORMAT_HF = 3,                   /* "hf" */
    FSDPCK_FORMAT_SAFETENSORS = 4,          /* "safetensors" */
    FSDPCK_FORMAT_HDF5 = 5,                 /* "hdf5" */
    FSDPCK_FORMAT_PT_RANKS = 6,             /* "pt-ranks" */
    FSDPCK_FORMAT_PT = 7,                   /* "pt" */
    FSDPCK_FORMAT_HF_BIN = 8,               /* "hf-bin", read only */
    FSDPCK_FORMAT_FSDP1 = 9,                /* "fsdp1", written only: read as "pt-ranks" */
    FSDPCK_FORMAT_PEFT = 10,                /* "peft", written only: read as "safetensors" */
    FSDPCK_FORMAT_DEEPSPEED = 11,           /* "deepspeed", read only */
    FSDPCK_FORMAT_DEEPSPEED_UNIVERSAL = 12, /* "deepspeed-universal", read only */
    FSDPCK_FORMAT_MEMORY = 13,              /* "memory", of fsdpck_open_memory */
} fsdpck_format_id;

#endif
