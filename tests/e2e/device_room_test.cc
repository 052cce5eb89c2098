// What a device's memory has no room for is refused before anything is computed, with what fits.
#include "device_room.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "synth/synth.h"

namespace lockstep::app {
namespace {

// A backend that has only memory, and so much of it.
class Room final : public kernels::Backend {
 public:
  explicit Room(std::optional<int64_t> free) : free_(free) {}
  kernels::BackendInfo info() const override { return {"cuda", "sm_90"}; }
  kernels::LoadReport prepare(const kernels::Graph&) override { return {}; }
  std::unique_ptr<Backend> sibling(const std::string&, int) const override { return nullptr; }
  void set_observer(kernels::OpObserver*) override {}
  void run(const kernels::Graph&, kernels::Pass&) override {}
  std::optional<int64_t> free_memory() const override { return free_; }

 private:
  std::optional<int64_t> free_;
};

std::string refusal(std::optional<int64_t> free, int64_t context, kernels::KvType type) {
  // Two layers with one head of 32: 256 bytes a position in f16, 136 in q8_0.
  static const auto model = model::Model::load(synth::make_in_memory(synth::parse_synth(
      "llama-tiny,layers=2,embd=64,heads=2,kv_heads=1,head_dim=32,ffn=64,vocab=300,ctx=512@q8_0")));
  try {
    check_room_for_context(Room(free), *model, context, type, type);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::resource);
    return error.what();
  }
  return "";
}

TEST(DeviceRoom, MainMemoryIsNotAskedHere) {
  EXPECT_EQ(refusal(std::nullopt, int64_t{1} << 40, kernels::KvType::f16), "");
}

TEST(DeviceRoom, SaysWhatFits) {
  EXPECT_EQ(refusal(int64_t{256} * 640000, 640000, kernels::KvType::f16), "");
  const std::string f16 = refusal(int64_t{256} * 640000, 2000000, kernels::KvType::f16);
  EXPECT_NE(f16.find("2000000 positions needs 0.51 GB"), std::string::npos) << f16;
  EXPECT_NE(f16.find("0.16 GB are free"), std::string::npos) << f16;
  EXPECT_NE(f16.find("; -c 640000 fits, with -ctk q8_0 -ctv q8_0 -c 1204672"), std::string::npos)
      << f16;
  const std::string q8 = refusal(int64_t{256} * 640000, 2000000, kernels::KvType::q8_0);
  EXPECT_NE(q8.find("; -c 1204672 fits"), std::string::npos) << q8;
  EXPECT_EQ(q8.find("-ctk"), std::string::npos) << q8;
  EXPECT_NE(refusal(1000, 2000000, kernels::KvType::q8_0).find("not even one page fits"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::app
