// docs/server.md against the code: every route, every field, every metric is in both.
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "serve/app.h"

namespace lockstep::serve {
namespace {

std::string read(const std::string& path) {
  std::ifstream file(std::string(LOCKSTEP_SOURCE_DIR) + "/" + path);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::set<std::string> all(const std::string& text, const std::string& pattern) {
  std::set<std::string> found;
  const std::regex expression(pattern);
  for (std::sregex_iterator at(text.begin(), text.end(), expression), end; at != end; ++at) {
    found.insert((*at)[1]);
  }
  return found;
}

TEST(ServerDocs, EveryRouteIsThereAndNoOther) {
  std::set<std::string> served, documented;
  for (const Route& route : routes()) {
    served.insert(std::string(route.method) + " " + std::string(route.path) +
                  (route.handle == nullptr ? " 501"
                   : route.open            ? " open"
                                           : ""));
  }
  // | `GET /health` | open | …
  const std::string text = read("docs/server.md");
  const std::regex row("\\| `((?:GET|POST) [^`]*)` \\|([^|]*)\\|");
  for (std::sregex_iterator at(text.begin(), text.end(), row), end; at != end; ++at) {
    const std::string note = (*at)[2];
    documented.insert((*at)[1].str() + (note.find("501") != std::string::npos    ? " 501"
                                        : note.find("open") != std::string::npos ? " open"
                                                                                 : ""));
  }
  EXPECT_EQ(served, documented);
  EXPECT_GT(served.size(), 20u);
}

TEST(ServerDocs, EveryFieldThatIsReadIsThere) {
  const std::string docs = read("docs/server.md");
  const std::string code = read("src/serve/request.cc") + read("src/serve/app.cc");
  std::set<std::string> fields = all(code,
                                     "\\b(?:fields|part|of|tool|call|called)\\.(?:find|has|boolean|"
                                     "integer|number|text)\\(\\s*\"([a-z_]+)\"");
  const std::set<std::string> refused = all(code,
                                            "\\{\"([a-z_]+)\", (?:zero|one|at_least_one|off|"
                                            "empty|no_word|negative|not_positive|\\[\\])");
  EXPECT_GT(fields.size(), 30u);
  EXPECT_GT(refused.size(), 20u);
  fields.insert(refused.begin(), refused.end());
  for (const std::string& field : fields) {
    EXPECT_NE(docs.find("`" + field), std::string::npos) << field << " is not in docs/server.md";
  }
  // Negative control: the search would find a field that is missing.
  EXPECT_EQ(docs.find("`no_such_field"), std::string::npos);
}

TEST(ServerDocs, EveryMetricIsThere) {
  const std::string docs = read("docs/server.md");
  Status status;
  status.counters.accepted_at = {1};
  status.counters.sources["suffix"] = {};
  HttpServer::Status http;
  http.errors["a"] = 1;
  const std::string text = metrics_text(status, http);
  const std::set<std::string> names = all(text, "# TYPE ([a-z_:]+) ");
  EXPECT_GT(names.size(), 20u);
  for (const std::string& name : names) {
    EXPECT_NE(docs.find("`" + name + "`"), std::string::npos) << name;
  }
  for (const std::string& name : all(docs, "`((?:llamacpp|lockstep):[a-z_]+)`")) {
    EXPECT_TRUE(names.contains(name)) << name << " is in docs/server.md alone";
  }
}

TEST(ApiKey, MatchesWholeKeysAlone) {
  const std::vector<std::string> keys = {"secret", "other"};
  EXPECT_TRUE(key_matches(keys, "secret"));
  EXPECT_TRUE(key_matches(keys, "other"));
  for (const char* wrong : {"", "secre", "secret ", "secret2", "SECRET", "secret,other"}) {
    EXPECT_FALSE(key_matches(keys, wrong)) << wrong;
  }
}

}  // namespace
}  // namespace lockstep::serve
