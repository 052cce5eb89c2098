// Text of files in the lab's pages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::lab {

// Fit for HTML's text and quoted attributes (the HTML standard's five); control characters and what
// is no UTF-8 are escaped as in messages, and it is cut at max_bytes.
std::string html_text(std::string_view text, size_t max_bytes = 2000);

}  // namespace lockstep::lab
