// What each kind of object may say: its fields, their types, and which it has to have.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lab/results/object.h"

namespace lockstep::lab {

// What is wrong with an object before it may be written: a field that its kind does not have, a
// value of another type, a field that is missing, a verdict that is none. "" where nothing is.
std::string fault_of(const Object& object);
// The fields of a kind as people type them: "change, setting.*, …".
std::string fields_of(Kind kind);
// The type that a field of a kind has, or nothing where there is no such field.
std::optional<FactType> field_type(Kind kind, std::string_view name);

inline constexpr std::string_view kVerdicts[] = {"better",  "not_better", "unknown",
                                                 "inexact", "invalid",    "fault"};
// Verdicts after which a candidate is not tried again under the same lane, unless its retry
// condition holds.
bool rejects(std::string_view verdict);

}  // namespace lockstep::lab
