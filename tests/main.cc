// Runs the tests of one layer with a fixed seed for RapidCheck, which prints it. RC_PARAMS in the environment wins:
// RC_PARAMS="seed=7 max_success=1000" hierarchy_test.
#include <gtest/gtest.h>

#include <cstdlib>

int main(int argc, char** argv) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const char* parameters = "seed=20240229 max_success=4";  // sanitizers look at paths, not at numbers
#else
  const char* parameters = "seed=20240229 max_success=20";  // batches of 100 trees: 2,000 trees a law
#endif
  setenv("RC_PARAMS", parameters, /*overwrite=*/0);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
