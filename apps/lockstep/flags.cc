// lockstep flags: the flag table as docs/flags.md, or as JSON.
#include <memory>

#include "cli.h"
#include "output.h"

namespace lockstep::app {

Runner set_up_flags(Flags& flags) {
  const auto json = std::make_shared<bool>(false);
  flags.toggle("--json", *json);
  flags.describe("Prints the table of all flags: used, accepted with a note, refused.",
                 "lockstep flags > docs/flags.md");
  return [json] {
    if (!*json) {
      print(flags_markdown());
      return ExitCode::ok;
    }
    static constexpr std::string_view kKinds[] = {"used", "noted", "refused"};
    Json list = Json::array();
    for (const Flag& flag : flag_table()) {
      list.push_back({{"names", split_names(flag.names)},
                      {"value", flag.value},
                      {"env", flag.env},
                      {"kind", kKinds[static_cast<int>(flag.kind)]},
                      {"commands", split_names(flag.commands)},
                      {"text", flag.text},
                      {"accepted", flag.off}});
    }
    print_json({{"schema", "lockstep.flags/1"}, {"flags", list}});
    return ExitCode::ok;
  };
}

}  // namespace lockstep::app
