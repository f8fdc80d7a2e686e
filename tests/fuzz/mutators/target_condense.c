#include "tests/fuzz/mutators/mutate.h"

MUTATOR(mutate_pickle)
