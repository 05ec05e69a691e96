#include "renai/app/app.hpp"

int main(int argc, char** argv) { return renai::run_app(argc, argv); }
