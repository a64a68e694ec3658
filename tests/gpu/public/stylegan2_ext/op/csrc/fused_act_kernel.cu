#include <ATen/cuda/CUDAContext.h>
#include <torch/extension.h>

#include <algorithm>

template <typename scalar_t>
static __global__ void bias_act_kernel(scalar_t* out, const scalar_t* in, const scalar_t* bias, const scalar_t* ref,
                                       int gradient, float slope, float scale, long size, long inner, int channels) {
  for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < size; i += (long)gridDim.x * blockDim.x) {
    float x = static_cast<float>(in[i]);
    if (!gradient) {
      x += static_cast<float>(bias[(i / inner) % channels]);
      out[i] = static_cast<scalar_t>((x > 0 ? x : x * slope) * scale);
    } else {
      out[i] = static_cast<scalar_t>((static_cast<float>(ref[i]) > 0 ? x : x * slope) * scale);
    }
  }
}

torch::Tensor fused_bias_act_cuda(const torch::Tensor& input, const torch::Tensor& bias, const torch::Tensor& output,
                                  int gradient, float slope, float scale) {
  auto out = torch::empty_like(input);
  long size = input.numel(), inner = 1;
  for (int d = 2; d < input.dim(); ++d) inner *= input.size(d);
  int channels = input.size(1);
  int threads = 256;
  long blocks = std::min<long>((size + threads - 1) / threads, 65535);
  auto b = bias.contiguous().to(input.dtype());
  auto ref = output.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "bias_act", [&] {
    bias_act_kernel<scalar_t><<<blocks, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        out.data_ptr<scalar_t>(), input.data_ptr<scalar_t>(), gradient ? nullptr : b.data_ptr<scalar_t>(),
        gradient ? ref.data_ptr<scalar_t>() : nullptr, gradient, slope, scale, size, inner, channels);
  });
  return out;
}
