// The program that computes, as results name it.
#pragma once

#include <string>

namespace lockstep::decode {

struct Program {
  std::string name;           // "lockstep 0.1.0"
  std::string binary_sha256;  // of the executable file, in hex; "" where it can't be read
};

}  // namespace lockstep::decode
