#pragma once
// The command line.

namespace renai {

/// Runs one command and returns the process exit code. Errors are printed once, here.
int run_app(int argc, char** argv);

}  // namespace renai
