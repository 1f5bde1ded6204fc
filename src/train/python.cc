// A trained model for Python: torch.classes.ramify.Predictor.
#include <torch/custom_class.h>

#include <string>
#include <vector>

#include "train/predictor.h"

namespace ramify::train {
namespace {

struct PythonPredictor : torch::CustomClassHolder {
  PythonPredictor(const std::string& folder, const std::string& device, const std::string& images)
      : predictor(folder, device, images) {}

  std::vector<std::string> predict(const std::vector<std::string>& records, int64_t first) {
    std::vector<std::string> results;
    for (const nlohmann::json& result : predictor.predict(records, first)) results.push_back(result.dump());
    return results;
  }

  std::string explain(const std::string& record) { return predictor.explain(record).dump(); }

  std::string config() const { return predictor.run().settings.to_json().dump(); }

  std::vector<std::string> classes() const { return predictor.run().schema->target.classes; }

  Predictor predictor;
};

TORCH_LIBRARY_FRAGMENT(ramify, library) {
  library.class_<PythonPredictor>("Predictor")
      .def(torch::init<std::string, std::string, std::string>())
      .def("predict", &PythonPredictor::predict)
      .def("explain", &PythonPredictor::explain)
      .def("config", &PythonPredictor::config)
      .def("classes", &PythonPredictor::classes);
}

}  // namespace
}  // namespace ramify::train
