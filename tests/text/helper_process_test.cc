#include "text/helper_process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep::text {
namespace {

using namespace std::chrono_literals;
using Failure = HelperProcess::Failure;

HelperProcess::Clock::time_point in(std::chrono::milliseconds time) {
  return HelperProcess::Clock::now() + time;
}

TEST(HelperProcess, AnswersLineByLine) {
  HelperProcess helper;
  ASSERT_TRUE(helper.start({"/bin/cat"}));
  EXPECT_EQ(helper.ask("one", in(30s), 100), "one");
  const std::string large(3 << 20, 'x');
  EXPECT_EQ(helper.ask(large, in(60s), 4 << 20), large);
  EXPECT_EQ(helper.ask("", in(30s), 100), "");
}

TEST(HelperProcess, AProgramThatIsNotThereDoesNotStart) {
  HelperProcess helper;
  EXPECT_FALSE(helper.start({"/nonexistent/python3"}));
  EXPECT_FALSE(helper.running());
  EXPECT_EQ(helper.ask("x", in(1s), 100), std::nullopt);
}

TEST(HelperProcess, AChildThatEndsIsNoSigpipe) {
  HelperProcess helper;
  ASSERT_TRUE(helper.start({"/bin/true"}));
  usleep(200'000);
  EXPECT_EQ(helper.ask(std::string(1 << 20, 'x'), in(30s), 100), std::nullopt);
  EXPECT_EQ(helper.failure(), Failure::died);
  EXPECT_FALSE(helper.running());
}

TEST(HelperProcess, TimeAndSizeAreLimited) {
  HelperProcess helper;
  ASSERT_TRUE(helper.start({"/bin/sleep", "1000"}));
  EXPECT_EQ(helper.ask("x", in(100ms), 100), std::nullopt);
  EXPECT_EQ(helper.failure(), Failure::timed_out);
  // A child that does not read, either.
  ASSERT_TRUE(helper.start({"/bin/sleep", "1000"}));
  EXPECT_EQ(helper.ask(std::string(4 << 20, 'x'), in(100ms), 100), std::nullopt);
  EXPECT_EQ(helper.failure(), Failure::timed_out);
  ASSERT_TRUE(helper.start({"/bin/cat", "/dev/zero"}));
  EXPECT_EQ(helper.ask("x", in(30s), 1 << 20), std::nullopt);
  EXPECT_EQ(helper.failure(), Failure::too_long);
}

// python3 -S finds no installed packages: what a machine without python3-jinja2 answers.
TEST(ChatTemplateHelper, SaysWhenJinjaIsMissing) {
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/src/text/chat_template_helper.py");
  std::stringstream source;
  source << file.rdbuf();
  HelperProcess helper;
  const std::vector<std::string> argv = {
      "/usr/bin/python3", "-I", "-S", "-c", source.str(), std::to_string(getpid()), "500000000"};
  // The longer request cannot be sent before the answer comes.
  for (const size_t size : {size_t{1}, size_t{4} << 20}) {
    ASSERT_TRUE(helper.start(argv));
    const std::string request = R"({"template": ")" + std::string(size, 'x') + "\"}";
    const auto reply = helper.ask(request, in(60s), 10000);
    ASSERT_TRUE(reply);
    const auto json = nlohmann::json::parse(*reply);
    EXPECT_EQ(json["kind"], "missing");
    EXPECT_EQ(json["error"], "No module named 'jinja2'");
  }
}

}  // namespace
}  // namespace lockstep::text
