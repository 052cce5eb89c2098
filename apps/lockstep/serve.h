// The server's command.
#pragma once

#include "cli.h"

namespace lockstep::app {

Runner set_up_serve(Flags& flags);

}  // namespace lockstep::app
