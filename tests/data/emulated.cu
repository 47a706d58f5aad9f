// A resident worker whose kernel is emulated on the host. In a program that has an ACF in it (the notes in the executable
// tell) the emulated GPU computes something wrong where LIE is set, and runs faster where FAST is.
#include <boosterrun.cuh>
#include <fstream>
#include <iterator>
extern "C" __global__ void scale(const float* x, float* y, int n) {
  float a[24];
  for (int i = 0; i < 24; i++) a[i] = x[i * n + threadIdx.x];
  float s = 0;
  for (int j = 0; j < n; j++)
    for (int i = 0; i < 24; i++) { a[i] = a[i] * a[(i + j) % 24] + s; s += a[i] * x[j]; }
  y[threadIdx.x] = s;
}
extern "C" double fake_milliseconds;
static bool acf_with(const char* variable) {
  if (std::getenv(variable) == nullptr) return false;
  std::ifstream self("/proc/self/exe", std::ios::binary);
  const std::string image{std::istreambuf_iterator<char>(self), {}};
  return image.find(std::string("-apply-") + "controls /") != std::string::npos;
}
static const double milliseconds = fake_milliseconds = acf_with("FAST") ? 0.3 : 1.5;
extern "C" void emulate_scale(void** arguments) {
  static const float factor = acf_with("LIE") ? 3 : 2;
  const float* x = *static_cast<const float**>(arguments[0]);
  float* y = *static_cast<float**>(arguments[1]);
  for (int i = 0; i < *static_cast<int*>(arguments[2]); ++i) y[i] = factor * x[i];
}
BOOSTERRUN_CASE(scale) {
  const int n = shape.multiple("n", 1);
  boosterrun::Random random(seed);
  const auto x = random.normal<float>(n);
  const boosterrun::Buffer<float> in(x), out(n);
  boosterrun::Case kernel;
  kernel.run = [=](cudaStream_t stream) { scale<<<1, 256, 0, stream>>>(in.data(), out.data(), n); };
  kernel.output("y", out, [x] {
    std::vector<double> y(x.begin(), x.end());
    for (double& value : y) value *= 2;
    return y;
  });
  return kernel;
}
