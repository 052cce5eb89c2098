#include "kernels/cpu/tiles/prefetch.h"

#include <unistd.h>

namespace lockstep::kernels::tiles {

// 48 kB and more: as measured on Zen 5, where the second level has nothing to add. 32 kB: 12 kB
// ahead would push out activations, 3 kB is too short for memory, and the second level is on the
// way (Zen 4).
const Ahead kAhead =
    sysconf(_SC_LEVEL1_DCACHE_SIZE) >= 48 << 10 ? Ahead{12288, 12288} : Ahead{3072, 16384};

}  // namespace lockstep::kernels::tiles
