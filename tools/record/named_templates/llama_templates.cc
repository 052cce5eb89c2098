// What llama.cpp's built-in chat templates make of a conversation. Built by record.py against a
// llama.cpp tree; no part of Lockstep.
//   llama_templates NAME ADD_GENERATION_PROMPT(0|1) ROLE CONTENT [ROLE CONTENT ...]
#include <cstdio>
#include <string>
#include <vector>

#include "llama.h"

int main(int argc, char** argv) {
  std::vector<llama_chat_message> messages;
  for (int i = 3; i + 1 < argc; i += 2) messages.push_back({argv[i], argv[i + 1]});
  std::string text(1 << 16, '\0');
  const int32_t n =
      llama_chat_apply_template(argv[1], messages.data(), messages.size(), argv[2][0] == '1',
                                text.data(), static_cast<int32_t>(text.size()));
  if (n < 0 || n > static_cast<int32_t>(text.size())) return 1;
  std::fwrite(text.data(), 1, static_cast<size_t>(n), stdout);
  return 0;
}
