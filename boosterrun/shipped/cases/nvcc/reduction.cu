// Row sums of a matrix in single precision, against double precision on the host. Shape: rows, columns (of 4).
#include <boosterrun.cuh>

constexpr int kThreads = 256;

// One block a row: 16-byte loads, warp shuffles, one shared-memory step.
extern "C" __global__ void __launch_bounds__(kThreads) row_sums(const float4* __restrict__ x, float* __restrict__ y, int quads) {
  const float4* row = x + static_cast<std::size_t>(blockIdx.x) * quads;
  float sum = 0;
  for (int i = threadIdx.x; i < quads; i += kThreads) {
    const float4 value = row[i];
    sum += (value.x + value.y) + (value.z + value.w);
  }
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffffu, sum, offset);
  __shared__ float warps[kThreads / 32];
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < kThreads / 32) {
    sum = warps[threadIdx.x];
    for (int offset = kThreads / 64; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffu, sum, offset);
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
  }
}

BOOSTERRUN_CASE(reduction) {
  const int rows = shape.multiple("rows", 1), columns = shape.multiple("columns", 4);
  const std::size_t height = rows, width = columns;
  boosterrun::Random random(seed);
  const auto x = random.uniform<float>(height * width);  // of one sign: no sum is lost to cancellation
  const boosterrun::Buffer<float> device_x(x), device_y(height);

  boosterrun::Case kernel;
  kernel.flops = 1.0 * rows * columns;
  kernel.bytes = sizeof(float) * (1.0 * rows * columns + rows);
  kernel.run = [=](cudaStream_t stream) {
    row_sums<<<rows, kThreads, 0, stream>>>(reinterpret_cast<const float4*>(device_x.data()), device_y.data(), columns / 4);
  };
  const auto reference = [=] {
    std::vector<double> sums(height);
    boosterrun::parallel(height, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i)
        for (std::size_t j = 0; j < width; ++j) sums[i] += x[i * width + j];
    });
    return sums;
  };
  kernel.output("sums", device_y, reference, 1e-5);
  return kernel;
}
