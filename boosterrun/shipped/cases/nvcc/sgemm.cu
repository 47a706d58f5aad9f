// C = A * B in single precision, against double precision on the host. Shape: m, n (multiples of 128), k (of 8).
#include <boosterrun.cuh>

#include "../../kernels/sgemm.cu"

BOOSTERRUN_CASE(sgemm) {
  const int m = shape.multiple("m", 128), n = shape.multiple("n", 128), k = shape.multiple("k", 8);
  const std::size_t rows = m, columns = n, depth = k;
  boosterrun::Random random(seed);
  const auto a = random.normal<float>(rows * depth), b = random.normal<float>(depth * columns);
  const boosterrun::Buffer<float> device_a(a), device_b(b), device_c(rows * columns);

  boosterrun::Case kernel;
  kernel.flops = 2.0 * m * n * k;
  kernel.bytes = sizeof(float) * (1.0 * m * k + 1.0 * k * n + 1.0 * m * n);
  kernel.run = [=](cudaStream_t stream) {
    sgemm<<<dim3(n / 128, m / 128), 256, 0, stream>>>(device_a.data(), device_b.data(), device_c.data(), m, n, k);
  };
  const auto reference = [=] {
    std::vector<double> c(rows * columns);
    boosterrun::parallel(rows, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i)
        for (std::size_t q = 0; q < depth; ++q) {
          const double left = a[i * depth + q];
          for (std::size_t j = 0; j < columns; ++j) c[i * columns + j] += left * b[q * columns + j];
        }
    });
    return c;
  };
  kernel.output("c", device_c, reference, 1e-5);
  return kernel;
}
