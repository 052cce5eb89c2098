#include "text/special_tokens.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace lockstep::text {
namespace {

std::string show(const std::vector<Fragment>& fragments, std::string_view text) {
  std::string out;
  for (const Fragment& f : fragments) {
    out += f.token >= 0 ? fmt::format("<{}>", f.token)
                        : fmt::format("[{}]", text.substr(f.begin, f.end - f.begin));
  }
  return out;
}

// The rule as it is said: token by token, longest first, over the list of fragments.
std::vector<Fragment> by_the_rule(std::vector<SpecialToken> tokens, std::string_view text,
                                  bool parse_special) {
  std::sort(tokens.begin(), tokens.end(), [](const SpecialToken& a, const SpecialToken& b) {
    return a.text.size() != b.text.size() ? a.text.size() > b.text.size() : a.id < b.id;
  });
  std::vector<Fragment> fragments;
  if (!text.empty()) fragments.push_back({-1, 0, text.size()});
  for (const SpecialToken& token : tokens) {
    if (!parse_special && !token.always) continue;
    std::vector<Fragment> next;
    for (const Fragment& f : fragments) {
      if (f.token >= 0) {
        next.push_back(f);
        continue;
      }
      size_t at = f.begin;
      for (;;) {
        const size_t hit = text.substr(0, f.end).find(token.text, at);
        if (hit == std::string_view::npos) break;
        if (hit > at) next.push_back({-1, at, hit});
        at = hit + token.text.size();
        next.push_back({token.id, hit, at});
        while (token.strip_right && at < f.end && text[at] == ' ') ++at;
      }
      if (at < f.end) next.push_back({-1, at, f.end});
    }
    fragments = next;
  }
  return fragments;
}

TEST(SpecialTokens, LongestFirstOverTheWholeText) {
  const SpecialTokens tokens({{1, "ab", true}, {2, "bcd", true}, {3, "<s>", false}});
  EXPECT_EQ(show(tokens.split("abcd", false), "abcd"), "[a]<2>");
  EXPECT_EQ(show(tokens.split("x<s>ab", false), "x<s>ab"), "[x<s>]<1>");
  EXPECT_EQ(show(tokens.split("x<s>ab", true), "x<s>ab"), "[x]<3><1>");
  EXPECT_EQ(show(tokens.split("", true), ""), "");
}

TEST(SpecialTokens, WithoutTokensTheTextIsOneFragment) {
  EXPECT_EQ(show(SpecialTokens().split("abc", true), "abc"), "[abc]");
}

TEST(SpecialTokens, RunsAreCutFromTheLeft) {
  const SpecialTokens tokens({{1, "\n", true}, {2, "\n\n", true}, {3, "\n\n\n", true}});
  EXPECT_EQ(show(tokens.split("\n\n\n\n\n", false), "\n\n\n\n\n"), "<3><2>");
}

TEST(SpecialTokens, EqualToTheRuleOnRandomTexts) {
  std::mt19937 random(2);
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> texts;
    for (size_t i = 0; i < 1 + random() % 8; ++i) {
      std::string text(1 + random() % 5, ' ');
      for (char& c : text) c = "ab "[random() % 3];
      if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
    }
    std::vector<SpecialToken> specials;
    for (size_t i = 0; i < texts.size(); ++i) {
      specials.push_back({static_cast<int32_t>(i), texts[i], random() % 2 == 0, random() % 4 == 0});
    }
    const SpecialTokens tokens(specials);
    std::string text(random() % 24, ' ');
    for (char& c : text) c = "ab "[random() % 3];
    for (const bool parse : {false, true}) {
      EXPECT_EQ(show(tokens.split(text, parse), text),
                show(by_the_rule(specials, text, parse), text))
          << "in \"" << text << "\"";
    }
  }
}

}  // namespace
}  // namespace lockstep::text
