// How a command ends with a status of its own, after it has said why.
#pragma once

namespace ramify::cli {

struct ExitStatus {
  int status;
};

inline void throw_exit_status(int status) {
  if (status != 0) throw ExitStatus{status};
}

}  // namespace ramify::cli
