// The chat page, as it is in the binary (page/).
#pragma once

#include <string_view>

namespace lockstep::serve {

struct PageFile {
  const char* type;  // of its content
  std::string_view text;
};
extern const PageFile kPage, kPageStyle, kPageScript;

}  // namespace lockstep::serve
