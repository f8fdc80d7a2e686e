#include "formats/common/torch_archive.h"
#include "formats/dcp/dcp.h"
#include "formats/format.h"
#include "formats/hdf5/hdf5.h"
#include "formats/pt/pt.h"
#include "formats/safetensors/st.h"

/* The order of detection: formats with a unique file name come first. */
const format_reader *const format_readers[] = {
    &dcp_reader,  &dcp_safetensors_reader, &hf_reader, &safetensors_reader,
    &hdf5_reader, &pt_ranks_reader,        &pt_reader, &hf_bin_reader,
    NULL,
};

const format_writer *const format_writers[] = {
    &safetensors_writer,     &hf_writer,    &pt_writer,   &dcp_writer, &pt_ranks_writer,
    &dcp_safetensors_writer, &fsdp1_writer, &hdf5_writer, NULL,
};

const char *format_hdf5_state(void)
{
    return hdf5_built_state();
}

bool format_is_foreign(const probe_input *in)
{
    return in->is_folder ? ranks_are_foreign(in) : torch_is_foreign(in->head, in->head_nbytes);
}
