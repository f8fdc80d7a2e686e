#include <criterion/criterion.h>

#include "formats/deepspeed/deepspeed.h"
#include "formats/deepspeed/ds_internal.h"

Test(ds_names, files_of_ranks)
{
    ds_file f;
    cr_expect_eq(ds_name_parse("mp_rank_00_model_states.pt", &f), DS_MODEL);
    cr_expect_eq(ds_name_parse("zero_pp_rank_12_mp_rank_00_model_states.pt", &f), DS_MODEL_3);
    cr_expect(f.rank == 12 && f.model_rank == 0 && !f.has_bf16);
    cr_expect_eq(ds_name_parse("zero_pp_rank_0_mp_rank_03_optim_states.pt", &f), DS_OPTIM);
    cr_expect(f.rank == 0 && f.model_rank == 3 && !f.has_bf16);
    cr_expect_eq(ds_name_parse("bf16_zero_pp_rank_7_mp_rank_00_optim_states.pt", &f), DS_OPTIM);
    cr_expect(f.rank == 7 && f.has_bf16);
}

Test(ds_names, files_of_experts_and_stages)
{
    static const char *const names[] = {"layer_0_expert_3_mp_rank_00_model_states.pt",
                                        "layer_02-model_00-model_states.pt",
                                        "expp_rank_1_mp_rank_00_optim_states.pt"};
    ds_file f;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        cr_expect_eq(ds_name_parse(names[i], &f), DS_FOREIGN, "%s", names[i]);
}

Test(ds_names, other_files)
{
    static const char *const names[] = {"",
                                        "model_states.pt",
                                        "mp_rank_00_model_states.pt.tmp",
                                        "mp_rank_00_optim_states.pt",
                                        "mp_rank__model_states.pt",
                                        "zero_pp_rank_0_model_states.pt",
                                        "zero_pp_rank_-1_mp_rank_00_optim_states.pt",
                                        "zero_pp_rank_1x_mp_rank_00_optim_states.pt",
                                        "zero_pp_rank_12345678901_mp_rank_00_optim_states.pt",
                                        "bf16_mp_rank_00_model_states.pt",
                                        "bf16_zero_pp_rank_0_mp_rank_00_model_states.pt",
                                        "zero_to_fp32.py",
                                        "latest"};
    ds_file f;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        cr_expect_eq(ds_name_parse(names[i], &f), DS_NONE, "%s", names[i]);
        cr_expect_not(deepspeed_name_has_rank(names[i]), "%s", names[i]);
    }
    cr_expect_not(deepspeed_name_has_rank("mp_rank_00_model_states.pt"), "it has all weights");
    cr_expect(deepspeed_name_has_rank("zero_pp_rank_3_mp_rank_00_optim_states.pt"));
}
