// How the verb `plan` prints.
#pragma once

#include <string>

#include "runtime/planner/plan.h"
#include "runtime/planner/scale.h"

namespace anabranch {

// Tables: the layouts, what the best one's step and memory are made of, its bytes on the links.
std::string plan_text(const Plan& plan);
std::string plan_json(const Plan& plan);

std::string scale_text(const ScaleCurves& curves);
std::string scale_json(const ScaleCurves& curves);

}  // namespace anabranch
