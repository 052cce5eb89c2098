// A file that is no server's log: what lab log and lab whatif say of it.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "lab/log/analysis.h"

namespace lockstep::app {

inline void require_timings(const lab::log::Analysis& analysis,
                            const std::vector<std::string>& files) {
  if (analysis.request_count > 0 || analysis.interval_count > 0) return;
  throw Error(ExitCode::bad_file,
              fmt::format("{}: no request's timing in {}; is it the log of llama-server, "
                          "ik_llama.cpp or vLLM?",
                          shorten(files[0]), files.size() == 1 ? "it" : "it or the others"));
}

}  // namespace lockstep::app
