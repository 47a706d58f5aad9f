// What a GPU would make of the shipped kernels, in plain loops: (arguments) as the launches pass them. Each takes 0.3 ms.
#include <cmath>
#include <cstddef>
#include <vector>

extern "C" double fake_milliseconds;
static const double milliseconds = fake_milliseconds = 0.3;

struct Body { float x, y, z, w; };

template <typename T>
static T argument(void** arguments, int index) { return *static_cast<T*>(arguments[index]); }

extern "C" void emulate_sgemm(void** arguments) {
  const auto a = argument<const float*>(arguments, 0), b = argument<const float*>(arguments, 1);
  const auto c = argument<float*>(arguments, 2);
  const int m = argument<int>(arguments, 3), n = argument<int>(arguments, 4), k = argument<int>(arguments, 5);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int q = 0; q < k; ++q) sum += a[std::size_t(i) * k + q] * b[std::size_t(q) * n + j];
      c[std::size_t(i) * n + j] = sum;
    }
}

extern "C" void emulate_nbody(void** arguments) {
  const auto bodies = argument<const Body*>(arguments, 0);
  const auto out = argument<Body*>(arguments, 1);
  const int n = argument<int>(arguments, 2);
  const float softening = argument<float>(arguments, 3);
  for (int part = 0; part < 4; ++part)
    for (int i = 0; i < n; ++i) {
      Body sum{0, 0, 0, 0};
      for (int j = part * n / 4; j < (part + 1) * n / 4; ++j) {
        const float dx = bodies[j].x - bodies[i].x, dy = bodies[j].y - bodies[i].y, dz = bodies[j].z - bodies[i].z;
        const float factor = bodies[j].w * std::pow(dx * dx + dy * dy + dz * dz + softening, -1.5f);
        sum.x += dx * factor, sum.y += dy * factor, sum.z += dz * factor;
      }
      out[part * n + i] = sum;
    }
}

extern "C" void emulate_row_sums(void** arguments) {
  const auto x = argument<const float*>(arguments, 0);
  const auto y = argument<float*>(arguments, 1);
  const int columns = 4 * argument<int>(arguments, 2);
  for (int i = 0; i < 96; ++i) {
    double sum = 0;
    for (int j = 0; j < columns; ++j) sum += x[std::size_t(i) * columns + j];
    y[i] = static_cast<float>(sum);
  }
}
