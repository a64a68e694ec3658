#include <torch/extension.h>

torch::Tensor fused_bias_act_cuda(const torch::Tensor& input, const torch::Tensor& bias, const torch::Tensor& output,
                                  int gradient, float slope, float scale);

torch::Tensor fused_bias_act(const torch::Tensor& input, const torch::Tensor& bias, const torch::Tensor& output,
                             int gradient, float slope, float scale) {
  TORCH_CHECK(input.is_cuda() && input.is_contiguous(), "input must be a contiguous CUDA tensor");
  return fused_bias_act_cuda(input, bias, output, gradient, slope, scale);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("fused_bias_act", &fused_bias_act, "bias, leaky ReLU and gain (CUDA)");
}
