// Whether this build has a sanitizer: it makes the scalar kernels some ten times slower, and needs
// the paths, not every shape.
#pragma once

namespace lockstep::test {

// GCC says it by a macro, clang (19) by a feature.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LOCKSTEP_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOCKSTEP_SANITIZED 1
#endif
#ifdef LOCKSTEP_SANITIZED
inline constexpr bool kSanitized = true;
#undef LOCKSTEP_SANITIZED
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace lockstep::test
