// Accelerations of all pairs of n bodies, against double precision on the host. Shape: n (a multiple of 1024).
#include <boosterrun.cuh>

#include "../../kernels/nbody.cu"

BOOSTERRUN_CASE(nbody) {
  constexpr double kSoftening = 1e-2;
  constexpr std::size_t kParts = 4;  // the kernel leaves a sum for each quarter of the bodies
  const int n = shape.multiple("n", 1024);
  const std::size_t count = n;
  boosterrun::Random random(seed);
  const auto positions = random.normal<float>(3 * count), masses = random.normal<float>(count);
  std::vector<float4> bodies(count);
  for (std::size_t i = 0; i < count; ++i)
    bodies[i] = {positions[3 * i], positions[3 * i + 1], positions[3 * i + 2], std::fabs(masses[i])};
  const boosterrun::Buffer<float4> device_bodies(bodies);
  const boosterrun::Buffer<float> device_sums(kParts * count * 4);

  boosterrun::Case kernel;
  kernel.flops = 20.0 * n * n;
  kernel.bytes = sizeof(float4) * (1.0 + kParts) * n;
  kernel.run = [=](cudaStream_t stream) {
    nbody<<<dim3(n / 256, kParts), 256, 0, stream>>>(device_bodies.data(), reinterpret_cast<float4*>(device_sums.data()), n,
                                                     static_cast<float>(kSoftening));
  };
  const auto reference = [=] {
    std::vector<double> accelerations(4 * count);
    boosterrun::parallel(count, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        double x = 0, y = 0, z = 0;
        for (const float4& other : bodies) {
          const double dx = double(other.x) - bodies[i].x, dy = double(other.y) - bodies[i].y, dz = double(other.z) - bodies[i].z;
          const double square = dx * dx + dy * dy + dz * dz + kSoftening;
          const double factor = other.w / (square * std::sqrt(square));
          x += dx * factor, y += dy * factor, z += dz * factor;
        }
        accelerations[4 * i] = x, accelerations[4 * i + 1] = y, accelerations[4 * i + 2] = z;
      }
    });
    return accelerations;
  };
  const auto sum = [count](const std::vector<float>& parts) {
    std::vector<double> total(4 * count);
    for (std::size_t i = 0; i < parts.size(); ++i) total[i % total.size()] += parts[i];
    return total;
  };
  kernel.output("accelerations", device_sums, reference, 1e-4, {sum});
  return kernel;
}
