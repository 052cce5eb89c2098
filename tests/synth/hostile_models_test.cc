// Models that are wrong as models are refused by one clear line, whatever is wrong with them.
#include "hostile_models.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "model/model.h"
#include "synth/synth.h"
#include "text/tokenizer.h"

namespace lockstep {
namespace {

gguf::File read(const std::vector<std::byte>& bytes) {
  return gguf::File::from_memory(std::make_shared<const std::vector<std::byte>>(bytes),
                                 "hostile.gguf");
}

class HostileModelTest : public testing::TestWithParam<test::HostileModel> {};

TEST_P(HostileModelTest, IsRefused) {
  const test::HostileFile& hostile = GetParam().file;
  const gguf::File file = read(hostile.bytes);
  std::string message;
  try {
    model::Model::load(file);
    EXPECT_FALSE(GetParam().inspect_refuses) << "the model was taken";
    text::Tokenizer::load(file);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_file) << error.what();
    message = error.what();
  }
  EXPECT_EQ(message.rfind("hostile.gguf: ", 0), 0u) << message;
  for (const std::string& part : hostile.expect)
    EXPECT_NE(message.find(part), std::string::npos) << message;
  for (const char letter : message) EXPECT_GE(static_cast<unsigned char>(letter), 0x20u) << message;
}

INSTANTIATE_TEST_SUITE_P(All, HostileModelTest, testing::ValuesIn(test::hostile_models()),
                         [](const auto& model) { return model.param.file.name; });

TEST(HostileModel, ThereAreEnoughOfThem) {
  EXPECT_GE(test::hostile_models().size(), 60u);
}

// The models that were broken above are sound before.
TEST(HostileModel, TheirOriginsAreTaken) {
  for (const char* spec :
       {"synth:llama-tiny,embd=64,heads=4,kv_heads=2,head_dim=16,ffn=96,vocab=300@q8_0",
        "synth:gemma3-tiny,embd=64,heads=4,kv_heads=2,head_dim=16,ffn=96,vocab=300@q8_0"}) {
    const gguf::File file = synth::make_in_memory(synth::parse_synth(spec));
    EXPECT_NO_THROW(model::Model::load(file));
    EXPECT_NO_THROW(text::Tokenizer::load(file));
  }
}

}  // namespace
}  // namespace lockstep
