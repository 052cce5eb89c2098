// lockstep synth: writes a model of given shapes with random, well-scaled weights.
#include "synth/synth.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli.h"
#include "engine.h"
#include "output.h"
#include "text/utf8_stream.h"

namespace lockstep::app {
namespace {

struct SynthOptions {
  std::string spec;
  std::optional<std::string> output;
  bool json = false;
};

std::string joined(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, " "));
}

ExitCode synth(const SynthOptions& options) {
  if (options.spec.empty())
    bad_use("no SPEC; for example: lockstep synth llama-tiny@q4_0 -o tiny.gguf");
  if (!options.output) bad_use("no file to write; name one with -o FILE");
  if (options.output->empty()) bad_use("-o: the name is empty; name a file to write");
  std::error_code ignored;
  const auto status = std::filesystem::status(*options.output, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    // The finished file is renamed onto the name, which would replace a device or a pipe.
    bad_use(fmt::format("-o {}: is there and is not a regular file; name another",
                        shorten(*options.output)));
  }
  const synth::SynthSpec spec = synth::parse_synth(options.spec);
  const uint64_t total = synth::total_bytes(spec);
  Progress progress;
  synth::write(spec, *options.output, [&](uint64_t written) {
    progress.show(fmt::format("{} of {}", human_bytes(static_cast<double>(written)),
                              human_bytes(static_cast<double>(total))));
  });
  progress.clear();
  if (options.json) {
    print_json({{"schema", "lockstep.synth/1"},
                {"file", text::well_formed_utf8(*options.output)},
                {"spec", spec.text()},
                {"bytes", total}});
  } else {
    print(fmt::format("{}: {}, {}\n", escape(*options.output), spec.text(),
                      human_bytes(static_cast<double>(total))));
  }
  return ExitCode::ok;
}

}  // namespace

Runner set_up_synth(Flags& flags) {
  const auto options = std::make_shared<SynthOptions>();
  flags.positional("SPEC", "SHAPE[@TYPE][,key=value...], with or without synth: before it",
                   options->spec);
  flags.text("--output", options->output);
  flags.toggle("--json", options->json);
  flags.describe(
      fmt::format("Writes a GGUF model of a given shape with random, well-scaled weights; the "
                  "same SPEC gives the same bytes everywhere. Every -m takes synth:SPEC too.\n"
                  "Shapes: {}\nTypes: {}\nKeys: {}",
                  joined(synth::shape_names()), joined(synth::type_names()),
                  joined(synth::option_names())),
      "lockstep synth llama-135m@q4_0,seed=7 -o random.gguf");
  return [options] { return synth(*options); };
}

}  // namespace lockstep::app
