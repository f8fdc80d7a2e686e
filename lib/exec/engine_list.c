/* The engines: the only list of them. */
#include "exec/engine.h"

const engine *engine_choose(const exec_request *r)
{
    static const engine *const engines[] = {&engine_gpu, &engine_threads};
    size_t i = 0;
    while (!engines[i]->suits(r))
        i++;
    return engines[i];
}
