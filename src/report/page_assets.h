// The style and the script of every page, from page.css and page.js. Neither holds anything from data.
#pragma once

namespace ramify::report {

extern const char* const kPageStyle;
extern const char* const kPageScript;
extern const char* const kPageScriptSha256;  // hexadecimal

}  // namespace ramify::report
