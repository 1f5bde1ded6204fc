// The patches of an image as a grid of shades.
#pragma once

#include <span>
#include <string>

#include "report/shade.h"
#include "report/tree.h"

namespace ramify::report {

// Patches stand where their labels say ("row,column"); with other labels, in rows of a square.
std::string patch_grid_html(std::span<const TreeNode> patches, const Shade& shade);

}  // namespace ramify::report
