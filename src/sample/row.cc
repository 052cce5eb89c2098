#include "sample/row.h"

namespace lockstep::sample {

#ifdef LOCKSTEP_X86_64
extern const RowOps kRowOpsV3;
#endif

const RowOps& row_ops() {
#ifdef LOCKSTEP_X86_64
  static const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return v3 ? kRowOpsV3 : kRowOpsPortable;
#else
  return kRowOpsPortable;
#endif
}

}  // namespace lockstep::sample
