// V5: do the arms write the same tokens?
#pragma once

#include "lab/ab/ab.h"

namespace lockstep::lab::ab {

// The class is what the files say; `tokens` where they say nothing and have hashes. bits and
// tokens: every row of a prompt has one hash, over both arms; repeatable: within each arm. canary
// and quality ask nothing of hashes.
Exactness compare_tokens(const runs::Runs& a, const runs::Runs& b);

}  // namespace lockstep::lab::ab
