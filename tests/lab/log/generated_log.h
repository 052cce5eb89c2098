// A log as llama-server b11434 writes it at its default verbosity, of any length: requests of one
// slot with drafts of 5, progress lines while they run, and the lines of its HTTP server between
// them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace lockstep::lab::log {

// Request number `i`, about 1,700 bytes. Its drafted tokens are 5 a step, its rates over n - 1, and
// its step takes 20 ms and 0.2 ms more for each 1,000 positions.
inline void append_request(std::string& out, int64_t i) {
  const int64_t prompt = 500 + i * 37 % 30000, steps = 40 + i % 50, accepted = steps * (2 + i % 3);
  const int64_t tokens = 1 + accepted + steps;
  const double step_ms = 20 + 0.0002 * static_cast<double>(prompt),
               ms = step_ms * static_cast<double>(steps);
  const double prompt_ms = static_cast<double>(prompt) * 0.4;
  // Elapsed: a minute a request.
  const auto head = [&out, i](int second, std::string_view function, std::string_view level = "I") {
    fmt::format_to(std::back_inserter(out),
                   "{}.{:02d}.{:03d}.{:03d} {} slot {:>12.12}: id  0 | task {} | ", i, second,
                   i % 1000, i * 7 % 1000, level, function, i);
  };
  const auto add = [&out]<typename... T>(fmt::format_string<T...> format, T&&... values) {
    fmt::format_to(std::back_inserter(out), format, std::forward<T>(values)...);
  };
  head(1, "get_available_slot"), add("selected slot by LRU, t_last = {}\n", i * 60'000'000);
  head(1, "launch_slot_"), add("processing task, is_child = 0\n");
  for (int k = 0; k < 4; ++k) {
    head(2 + k, "print_timings_tg"),
        add("n_gen = {:6d}, tg = {:6.2f} t/s, tg_3s = {:6.2f} t/s\n", 100 + 60 * k, 49.5, 50.1);
  }
  head(55, "print_timing"), add("prompt eval time = {:10.2f} ms / {:5d} tokens ({:8.2f} ms per "
                                "token, {:8.2f} tokens per second)\n",
                                prompt_ms, prompt, 0.4, 2500.0);
  head(55, "print_timing"), add("       eval time = {:10.2f} ms / {:5d} tokens ({:8.2f} ms per "
                                "token, {:8.2f} tokens per second)\n",
                                ms, tokens, ms / static_cast<double>(tokens - 1),
                                static_cast<double>(tokens - 1) * 1000 / ms);
  head(55, "print_timing"),
      add("      total time = {:10.2f} ms / {:5d} tokens\n", prompt_ms + ms, prompt + tokens);
  head(55, "print_timing"), add("   graphs reused = {:10d}\n", i * 60);
  head(55, "print_timing"),
      add("draft acceptance = {:0.5f} ({:5d} accepted / {:5d} generated), mean len = {:5.2f}\n",
          static_cast<double>(accepted) / static_cast<double>(steps * 5), accepted, steps * 5,
          1 + static_cast<double>(accepted) / static_cast<double>(steps));
  head(56, "release"), add("stop processing: n_tokens = {}, truncated = 0\n", prompt + tokens - 1);
  add("{}.57.000.000 I srv  update_slots: all slots are idle\n{}.57.000.100 I srv  log_server_r: "
      "done request: POST /v1/chat/completions 127.0.0.1 200\n",
      i, i);
}

}  // namespace lockstep::lab::log
